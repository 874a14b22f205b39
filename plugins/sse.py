"""Server-sent events as bytes: where an event ends, what it says, and what ends a stream."""

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from plugins.slots import WorkerRejection

HELD_LIMIT: Final = 16 * 1024 * 1024
"""Bytes; no event of a model's answer is larger, and one that is never ends."""

DONE: Final = b"[DONE]"

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n?|\n")
_BLANK: Final = re.compile(rb"(?>\r\n?|\n)(?>\r\n?|\n)+")


def boundary(data: bytes | bytearray, start: int = 0) -> int:
    """The position behind the last blank line of `data` that ends after `start`, 0 if there is none.

    LF, CRLF and CR end lines; the line before a blank one may have ended right before `start`.
    """
    start = max(start - 1, 0)
    if data.find(b"\r", start) < 0:
        return data.rfind(b"\n\n", start) + 2 if data.find(b"\n\n", start) >= 0 else 0
    end = 0
    for blank in _BLANK.finditer(data, start):
        end = blank.end()
    return end


def events(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The name and the data of every whole event in `data` that has any data."""
    name, lines = b"", []
    for line in _LINE_END.split(data.removeprefix(_BOM))[:-1]:
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
        elif not line:
            if lines:
                yield name, b"\n".join(lines)
            name, lines = b"", []


class EventGate:
    """Lets whole events of one stream through and remembers how the stream stands.

    `done` once the event `[DONE]` passed, `errored` once an error passed: an event of that name, or one whose
    data is an error object. Bytes pass unchanged, but an error object that is flat is put into OpenAI's shape,
    since a client takes a flat one for a piece of the answer.
    """

    __slots__ = ("_held", "done", "errored")

    def __init__(self) -> None:
        self._held = bytearray()
        self.done = False
        self.errored = False

    def push(self, chunk: bytes) -> bytes:
        """Take bytes cut anywhere; returns the bytes up to the end of the last whole event.

        Raises:
            WorkerRejection: 502, an event grew beyond `HELD_LIMIT`.
        """
        if self._held or not chunk.endswith((b"\n\n", b"\r\n\r\n")):
            known = len(self._held)
            self._held += chunk
            end = boundary(self._held, known)
            if not end:
                if len(self._held) > HELD_LIMIT:
                    raise WorkerRejection(502, "an event of the stream is too large", "worker_error")
                return b""
            chunk = bytes(self._held[:end])
            del self._held[:end]
        if DONE in chunk or b"error" in chunk:
            return self._look(chunk)
        return chunk

    def ends_done(self) -> bool:
        """Whether what is held is a `data: [DONE]` that lacks only its blank line."""
        return DONE in self._held and any(_is_done(data) for _, data in events(bytes(self._held) + b"\n\n"))

    def flush(self) -> bytes:
        """At a stream's end: a `data: [DONE]` that lacked its blank line, else nothing.

        What is left of an event that was cut is dropped: a client could not read it.
        """
        rest = b"data: [DONE]\n\n" if self.ends_done() else b""
        self.done = self.done or bool(rest)
        self._held.clear()
        return rest

    def _look(self, chunk: bytes) -> bytes:
        for name, data in events(chunk):
            if _is_done(data):
                self.done = True
            elif name == b"error" or b"error" in data:
                value = _parse(data)
                flat = value.get("object") == "error" and not value.get("error")
                if flat:
                    chunk = chunk.replace(data, b'{"error":' + data + b"}")
                self.errored = self.errored or flat or name == b"error" or bool(value.get("error"))
        return chunk


def _is_done(data: bytes) -> bool:
    return data.strip() == DONE


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
