"""Server-sent events as bytes: where an event ends, and what it says."""

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

DONE: Final = b"[DONE]"

PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
"""A sign of life that is an event: Anthropic's clients wait anew for each one, and may get it at any place."""

COMMENT: Final = b": keep-alive\n\n"
"""A sign of life that no client of any grammar sees as an event."""

HEARTBEAT: Final = b'event: keepalive\ndata: {"type":"keepalive","sequence_number":0}\n\n'
"""A sign of life that is an event of a Responses stream, as OpenAI's own have it.

Codex counts events, and comments are none. Libraries of OpenAI fail on one that comes before `response.created`, and
older ones on any.
"""

KEEP_ALIVES: Final = (PING, COMMENT, HEARTBEAT)
"""Chunks that say nothing of the answer."""

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
    data = data.removeprefix(_BOM)
    for line in (_LINE_END.split(data) if b"\r" in data else data.split(b"\n"))[:-1]:
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
        elif not line:
            if lines:
                yield name, b"\n".join(lines)
            name, lines = b"", []


def frames(data: bytes) -> Iterator[bytes]:
    """The parts of `data`, which is whole events, that end in a blank line each."""
    start = 0
    for blank in _BLANK.finditer(data):
        yield data[start : blank.end()]
        start = blank.end()


def event(name: bytes, value: object) -> bytes:
    """An event with a name, whose data is JSON."""
    return b"event: " + name + b"\ndata: " + orjson.dumps(value) + b"\n\n"


def is_done(data: bytes) -> bool:
    """Whether an event's data is OpenAI's mark of the end."""
    return data.strip() == DONE


def parse(data: bytes) -> dict[str, Any] | None:
    """The object in an event's data, None if it is none."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
