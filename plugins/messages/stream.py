"""A chat stream as a stream of Messages events."""

from collections.abc import Container
from typing import Any, Final

import orjson
from attrs import define, field

from kernel import FAILED, Outcome
from plugins.messages.answer import malformed, message_head, reasoning_of, stop_of, usage_of
from plugins.messages.blocks import BlockWriter
from plugins.messages.refusals import Data
from plugins.slots import WorkerRejection
from plugins.sse import DONE, HELD_LIMIT, boundary, events

_CUT: Final = "the stream ended before the answer was complete"
_UNREADABLE: Final = "the worker sent an event that cannot be read"
_START: Final = b'event: message_start\ndata: {"type":"message_start","message":%b}\n\n'
_STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_LINE_ENDS: Final = (b"\n\n", b"\r\n\r\n")


@define(eq=False)
class MessageStream:
    """Turns the chunks of a chat stream, cut anywhere, into Messages events.

    `message_stop` is only written once the worker gave a reason for the end and sent its `[DONE]`. Anything else is
    an error: what came before it is written, and it is raised by the next chunk or told by `check`.
    """

    _model: str
    _stops: Container[str]
    _held: bytearray = field(factory=bytearray, init=False)
    _blocks: BlockWriter = field(factory=BlockWriter, init=False)
    _head: bytes = field(default=b"", init=False)
    _tail: bytes = field(default=b"", init=False)
    _begun: bool = field(default=False, init=False)
    _done: bool = field(default=False, init=False)
    _end: Data = field(factory=dict, init=False)
    _usage: Any = field(default=None, init=False)
    _fault: WorkerRejection | None = field(default=None, init=False)

    def push(self, chunk: bytes) -> bytes:
        """The events that a chunk completes.

        Raises:
            WorkerRejection: the worker told of an error, or what it sent is no chat stream.
        """
        if self._fault is not None:
            raise self._fault
        if self._done:
            return b""
        try:
            self._read(chunk)
        except WorkerRejection as fault:
            self._fault = fault
        written = b"".join((self._head, self._blocks.take(), self._tail))
        self._head = b""
        return written

    def check(self) -> Exception | None:
        """What was wrong with a stream that has ended."""
        return self._fault or (None if self._done else WorkerRejection(502, _CUT, "stream_incomplete"))

    def close(self, outcome: Outcome) -> bytes:
        """The end of what was open in a stream that failed."""
        if outcome.name != FAILED or self._done:
            return b""
        self._blocks.cut()
        return self._blocks.take()

    def _read(self, chunk: bytes) -> None:
        for name, data in events(self._whole(chunk)):
            if data.strip() == DONE:
                return self._finish()
            self._take(name, data)
        if DONE in self._held and self._held.partition(b":")[2].strip() == DONE:
            return self._finish()  # its blank line may never come
        return None

    def _whole(self, chunk: bytes) -> bytes:
        """The bytes up to the end of the last whole event."""
        if not self._held and chunk.endswith(_LINE_ENDS):
            return chunk
        known = len(self._held)
        self._held += chunk
        end = boundary(self._held, known)
        if not end and len(self._held) > HELD_LIMIT:
            raise malformed("an event of the stream is too large")
        chunk = bytes(self._held[:end])
        del self._held[:end]
        return chunk

    def _take(self, name: bytes, data: bytes) -> None:
        try:
            value = orjson.loads(data)
            if name == b"error" or value.get("error") or value.get("object") == "error":
                raise _told(value)
            choices = value.get("choices") or ()
            self._usage = value.get("usage") or self._usage
            if not self._begun:
                self._begun = True
                head = message_head(self._model, usage_of(self._usage, output=False))
                self._head = _START % orjson.dumps(head)
            for choice in choices:
                if choice.get("finish_reason"):
                    self._end = choice
                self._add(choice.get("delta") or {})
        except (orjson.JSONDecodeError, AttributeError, LookupError, TypeError):
            raise malformed(_UNREADABLE) from None

    def _add(self, delta: Data) -> None:
        if thought := reasoning_of(delta):
            self._blocks.say("thinking", _text(thought))
        if text := delta.get("content"):
            self._blocks.say("text", _text(text))
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            name, arguments = _text(function.get("name") or ""), _text(function.get("arguments") or "")
            self._blocks.call(call.get("index") or 0, call.get("id"), name, arguments)

    def _finish(self) -> None:
        if not self._end:
            raise WorkerRejection(502, _CUT, "stream_incomplete")
        stop_of(self._end, self._stops, tools=False)
        self._blocks.finish()
        reason, stop = stop_of(self._end, self._stops, tools=self._blocks.has_tools)
        ends = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": stop},
            "usage": usage_of(self._usage),
        }
        self._tail = b"event: message_delta\ndata: %b\n\n%b" % (orjson.dumps(ends), _STOP)
        self._done = True


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise malformed(_UNREADABLE)
    return value


def _told(value: Data) -> WorkerRejection:
    """The error that a worker told of within its stream, in OpenAI's shape or as a flat object."""
    error = value.get("error")
    error = error if isinstance(error, dict) else value
    status, message = error.get("code"), error.get("message")
    if not isinstance(status, int) or not 400 <= status <= 599:
        status = 502
    if not isinstance(message, str) or not message:
        message = "the worker ended the stream with an error"
    return WorkerRejection(status, message, "worker_error")
