"""The head of an answer, and what it says of the end of what follows."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from attrs import define, field
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE

_FRAMING: Final = frozenset((b"connection", b"content-length", b"transfer-encoding"))
_BODILESS: Final = (204, 304)
_VISIBLE: Final = HEADER_VALUE_RE.sub(b" ", bytes(range(256)))
"""A table that changes each byte which no header may have in its value."""


@lru_cache(maxsize=256)
def _form(names: tuple[bytes, ...]) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    """The lines of headers with these names, to be filled with values, and which of them say where something ends."""
    lower = [name.lower() for name in names]
    if any(map(HEADER_RE.search, lower)):
        raise RuntimeError("Invalid HTTP header name.")
    lines = b"".join(name.replace(b"%", b"%%") + b": %b\r\n" for name in lower)
    return lines, tuple((place, name) for place, name in enumerate(lower) if name in _FRAMING)


@define(eq=False)
class _Openings:
    """The first lines of answers by status, which are the same until the server's headers change with its clock."""

    fields: list[tuple[bytes, bytes]] = field(factory=list)
    made: dict[int, bytes] = field(factory=dict)

    def make(self, status: int, fields: list[tuple[bytes, bytes]]) -> bytes:
        if fields is not self.fields:
            self.fields, self.made = fields, {}
        opening = self.made[status] = STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % pair for pair in fields)
        return opening


_openings = _Openings()


def make_head(
    status: int,
    common: list[tuple[bytes, bytes]],
    headers: Sequence[tuple[bytes, bytes]],
    *,
    closes: bool,
    bodiless: bool,
) -> tuple[bytes, int, bool | None, bool]:
    """The head, how long the body is, whether it comes in chunks, and whether the connection closes after it.

    The body is in chunks if the headers do not say how it ends, unless there is none: then that is None.
    The `common` headers are the server's own, and a new list when they change.

    Raises:
        RuntimeError: a header cannot be sent.
    """
    opening = _openings.made.get(status) if common is _openings.fields else None
    names, values = zip(*headers, strict=True) if headers else ((), ())
    lines, framing = _form(names)
    text = b"".join(values)
    if text.translate(_VISIBLE) != text:
        raise RuntimeError("Invalid HTTP header value.")
    length, chunked, told = 0, None, False
    for place, name in framing:
        value = values[place]
        if name == b"content-length":
            if chunked is None:
                length, chunked = int(value), False
        elif name == b"transfer-encoding":
            if value.lower() == b"chunked":
                length, chunked = 0, True
        elif b"close" in [token.strip() for token in value.lower().split(b",")]:
            closes = told = True
    end = b"connection: close\r\n" if closes and not told else b""
    if chunked is None and not bodiless and status not in _BODILESS:
        chunked, end = True, end + b"transfer-encoding: chunked\r\n"
    head = b"%b%b%b\r\n" % (opening or _openings.make(status, common), lines % values, end)
    return head, length, chunked, closes
