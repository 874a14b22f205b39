"""What Anthropic's own library makes of a stream of Messages events."""

from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from kernel import COMPLETED, Outcome
from plugins.chat.stream import ChatStream
from plugins.messages.events import MessageEvents
from tests.messages.bodies import parsed

_EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def translate(*chunks: bytes, stops: tuple[str, ...] = ()) -> bytes:
    """The Messages events of a chat stream that comes in these chunks, which is whole and without fault."""
    stream = ChatStream(MessageEvents("claude", stops), empty=True)
    written = b"".join([stream.push(chunk) for chunk in chunks])
    assert stream.check() is None
    return written + stream.close(Outcome(COMPLETED))


def read(stream: bytes) -> Message:
    """The message that the library's helper puts together; each event has to be one of its models and no more."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    kinds = []
    for data in parsed(stream):
        event = _EVENT.validate_python(data, strict=True, extra="forbid")
        kinds.append(event.type)
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert not {"message_start", "message_delta", "message_stop"} & {*kinds[1:-2]}
    message: Message = snapshot
    return message
