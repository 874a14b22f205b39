"""Server-sent events: their syntax, and for each grammar of streams what ends one, well or not."""

from plugins.sse.events import DONE, boundary, event, events, frames, parse
from plugins.sse.gate import HELD_LIMIT, EventGate
from plugins.sse.messages import MessagesGate
from plugins.sse.responses import ResponsesGate

__all__ = [
    "DONE",
    "HELD_LIMIT",
    "EventGate",
    "MessagesGate",
    "ResponsesGate",
    "boundary",
    "event",
    "events",
    "frames",
    "parse",
]
