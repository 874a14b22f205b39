"""A chat stream, read as it comes and told in another API."""

from typing import Any, Final, Protocol

import orjson
from attrs import define, field

from kernel import FAILED, Outcome
from plugins.chat.answer import malformed, text_of
from plugins.chat.reading import Data
from plugins.chat.sequence import Sequence, Teller
from plugins.envelopes import hide_addresses
from plugins.slots import WorkerRejection
from plugins.sse import DONE, WHOLE, events, take_whole

_CUT: Final = "the stream ended before the answer was complete"
_UNREADABLE: Final = "the worker sent an event that cannot be read"


class Narrator(Teller, Protocol):
    """Tells a whole answer: its blocks, and what comes before and after them."""

    def head(self, usage: Any) -> bytes:
        """The answer begins; `usage` is the worker's, where it has told already."""
        ...

    def check(self, end: Data) -> None:
        """Look at the choice with the reason for the end, before what is open is told to its end.

        Raises:
            WorkerRejection: 502, it is no end of an answer.
        """
        ...

    def tail(self, end: Data, usage: Any) -> bytes:
        """The answer has ended."""
        ...


@define(eq=False)
class ChatStream:
    """Turns the chunks of a chat stream, cut anywhere, into events of another API.

    The end is only told once the worker gave a reason for it and sent its `[DONE]`. Anything else is an error: what
    came before it is told, and it is raised by the next chunk or given by `check`. `empty`: see `Sequence.finish`.
    """

    _narrator: Narrator
    _empty: bool = False
    _blocks: Sequence = field(init=False)
    _held: bytearray = field(factory=bytearray, init=False)
    _head: bytes = field(default=b"", init=False)
    _tail: bytes = field(default=b"", init=False)
    _begun: bool = field(default=False, init=False)
    _done: bool = field(default=False, init=False)
    _end: Data = field(factory=dict, init=False)
    _usage: Any = field(default=None, init=False)
    _fault: WorkerRejection | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._blocks = Sequence(self._narrator)

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
        told, head = self._blocks.take(), self._head
        self._head = b""
        return head + told + self._tail if head or self._tail else told

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
        if self._held or not chunk.endswith(WHOLE):
            chunk = take_whole(self._held, chunk)
        for name, data in events(chunk):
            if data.strip() == DONE:
                return self._finish()
            self._take(name, data)
        if self._held and DONE in self._held and self._held.partition(b":")[2].strip() == DONE:
            return self._finish()  # its blank line may never come
        return None

    def _take(self, name: bytes, data: bytes) -> None:
        try:
            value = orjson.loads(data)
            if name == b"error" or value.get("error") or value.get("object") == "error":
                raise _told(value)
            if usage := value.get("usage"):
                self._usage = usage
            if not self._begun:
                self._begun = True
                self._head = self._narrator.head(self._usage)
            for choice in value.get("choices") or ():
                if choice.get("finish_reason"):
                    self._end = choice
                if delta := choice.get("delta"):
                    self._add(delta)
        except (orjson.JSONDecodeError, AttributeError, LookupError, TypeError):
            raise malformed(_UNREADABLE) from None

    def _add(self, delta: Data) -> None:
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._blocks.say("thinking", text_of(thought))
        if text := delta.get("content"):
            self._blocks.say("text", text_of(text))
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            name, arguments = text_of(function.get("name") or ""), text_of(function.get("arguments") or "")
            self._blocks.call(call.get("index") or 0, call.get("id"), name, arguments)

    def _finish(self) -> None:
        self._narrator.check(self._end)
        self._blocks.finish(empty=self._empty)
        self._tail = self._narrator.tail(self._end, self._usage)
        self._done = True


def _told(value: Data) -> WorkerRejection:
    """The error that a worker told of within its stream, in OpenAI's shape or as a flat object."""
    error = value.get("error")
    error = error if isinstance(error, dict) else value
    status, message = error.get("code"), error.get("message")
    code = status if isinstance(status, str) and status else "worker_error"
    if not isinstance(status, int) or not 400 <= status <= 599:
        status = 502
    if not isinstance(message, str) or not message:
        message = "the worker ended the stream with an error"
    return WorkerRejection(status, hide_addresses(message), code)
