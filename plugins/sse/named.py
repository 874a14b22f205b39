"""What the grammars have in common whose events have names, Responses and Messages."""

from abc import abstractmethod
from typing import Any, ClassVar

from plugins.envelopes import hide_addresses
from plugins.slots import WorkerRejection
from plugins.sse.events import events, frames, parse
from plugins.sse.gate import EventGate

_UNEXPLAINED = "the worker ended the stream with an error"


class NamedGate(EventGate):
    """Lets whole events through, unchanged, until one that is an error in no shape of the grammar.

    Of an event that was cut at the end of the stream it lets through what a client can read: one whose data is
    whole gets its blank line, any other is dropped.
    """

    __slots__ = ()

    marks: ClassVar[tuple[bytes, ...]]
    """One of them is in every event that is looked at."""

    def push(self, chunk: bytes) -> bytes:
        """Take bytes cut anywhere; returns the bytes up to the end of the last whole event."""
        chunk = super().push(chunk)
        if self.told is not None:
            return b""
        for mark in self.marks:
            if mark in chunk:
                return self._inspect(chunk)
        return self._pass(chunk)

    def ends_done(self) -> bool:
        """Whether what is held is an event that ends the stream, and lacks only its blank line."""
        return any(self._is_last(name, parse(data) or {}) for name, data in events(self._close()))

    def flush(self) -> bytes:
        """At a stream's end: what is held, if it can be read, with its blank line, else nothing."""
        rest = self._close() or super().flush()
        self._held.clear()
        return rest if self.told is None and self._take(rest) else b""

    def _look(self, chunk: bytes) -> bytes:
        return chunk

    def _pass(self, chunk: bytes) -> bytes:
        """Note whole events that go out."""
        return chunk

    def _close(self) -> bytes:
        """What is held, with a blank line, if a client can read it."""
        closed = bytes(self._held) + b"\n\n"
        read = [*events(closed)]
        return closed if read and all(parse(data) is not None for _, data in read) else b""

    def _inspect(self, chunk: bytes) -> bytes:
        out: list[bytes] = []
        for frame in frames(chunk):
            if not self._take(frame):
                break
            out.append(self._pass(frame))
        return b"".join(out)

    def _take(self, frame: bytes) -> bool:
        """Note what the event in `frame` says; False if it is an error that must not go out as it is."""
        for name, data in events(frame):
            value = parse(data) or {}
            if self._is_stray(name, value):
                self.told = _told(value)
                return False
            self._note(name, value, data)
        return True

    @abstractmethod
    def _is_last(self, name: bytes, value: dict[str, Any]) -> bool:
        """Whether this event ends a stream, well or not."""

    @abstractmethod
    def _is_stray(self, name: bytes, value: dict[str, Any]) -> bool:
        """Whether this event is an error that no client of this grammar would take for one."""

    @abstractmethod
    def _note(self, name: bytes, value: dict[str, Any], data: bytes) -> None:
        """Remember what the event says of the stream."""


def is_error(value: dict[str, Any]) -> bool:
    """Whether an event's data is an error object as completions and chat have it, OpenAI's or a flat one."""
    return bool(value.get("error")) or value.get("object") == "error"


def _told(value: dict[str, Any]) -> WorkerRejection:
    error = value["error"] if isinstance(value.get("error"), dict) else value
    message, code = error.get("message"), error.get("code")
    text = hide_addresses(message) if isinstance(message, str) and message else _UNEXPLAINED
    return WorkerRejection(502, text, code if isinstance(code, str) else "worker_error")
