"""Heads that come again: those of one worker differ in the length of the body, and once a second in their date."""

import re
from typing import Final

from plugins.dispatch.transports.lean.head import HEAD_END, Head

SIZE: Final = 2048
"""Bytes of the largest head that is remembered."""

MISSES: Final = 16
"""After so many heads in a row that were new, only one in as many is remembered: each may have an id of its own."""

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([1-9][0-9]{0,17})\r\n")
_DIGITS: Final = 18
_ZERO: Final = ord("0")


class Repeats:
    """The last head with a length that a worker sent, and the last one without; both to no request for a head alone.

    What a head says follows from its bytes. If it has a length, that may be any other one without a change of what the
    rest says.
    """

    __slots__ = ("_after", "_before", "_end", "_exact", "_found", "_missed", "_sized_head", "_start")

    _sized_head: Head

    def __init__(self) -> None:
        self._exact = self._before = self._after = HEAD_END
        self._end = self._start = self._missed = 0
        self._found: tuple[Head, int, int] | None = None

    def recall(self, data: bytes) -> tuple[Head, int, int] | None:
        """The head that `data` begins with if it is one of them, the length of its body, and where that begins."""
        if data.startswith(self._before):
            start = self._start
            stop = data.find(b"\r", start, start + _DIGITS + 1)
            digits = data[start:stop]
            if data.startswith(self._after, stop) and digits.isdigit() and digits[0] != _ZERO:
                self._missed = 0
                return self._sized_head, int(digits), stop + self._end
        elif data.startswith(self._exact):
            self._missed = 0
            return self._found
        return None

    def remember(self, data: bytes, head: Head) -> None:
        """Take note of a head that was read out of `data`, unless that is more: there are interim heads before it."""
        self._missed += 1
        if self._missed > MISSES and self._missed % MISSES:
            return
        if len(data) > SIZE or data.find(HEAD_END) != len(data) - len(HEAD_END):
            return
        found = _LENGTH.search(data)
        if found is None:
            self._exact, self._found = data, (head, head.length, len(data))
        elif head.length == int(found[1]):  # else it is that of a body which does not come
            start, stop = found.span(1)
            self._before, self._after, self._sized_head = data[:start], data[stop:], head
            self._start, self._end = start, len(data) - stop
