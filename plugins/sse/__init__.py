"""Server-sent events: their syntax, and for each grammar of streams what ends one, well or not."""

from plugins.sse.events import COMMENT, DONE, HEARTBEAT, KEEP_ALIVES, PING, boundary, event, events, frames, parse
from plugins.sse.gate import EventGate
from plugins.sse.holding import WHOLE, take_whole
from plugins.sse.messages import MessagesGate
from plugins.sse.responses import ResponsesGate

__all__ = [
    "COMMENT",
    "DONE",
    "HEARTBEAT",
    "KEEP_ALIVES",
    "PING",
    "WHOLE",
    "EventGate",
    "MessagesGate",
    "ResponsesGate",
    "boundary",
    "event",
    "events",
    "frames",
    "parse",
    "take_whole",
]
