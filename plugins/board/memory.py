"""The memory itself: how long it is, who has which row, and how a process comes by it."""

import fcntl
import mmap
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.board.ring import RING_WORDS
from plugins.board.slots import SLOTS_WORDS, wipe

BOARD: Final = "DISAGG_KERNEL_BOARD"
"""Tells a process the descriptor of the memory, and its row: `5:0`."""

Words: TypeAlias = memoryview
"""Signed integers of eight bytes each, which are read and written whole."""

_WORD: Final = 8
_MARK: Final = 0x6B65726E_00000001
"""Stands first, so that nothing else is taken for a board, nor one of another layout."""

_HEAD_WORDS: Final = 8
_ROW_WORDS: Final = SLOTS_WORDS + RING_WORDS
_MOST_ROWS: Final = 1024

log = get_logger()


class BoardError(Exception):
    """What should be the memory of several processes is none."""


@define(eq=False)
class Board:
    """Made by the supervisor, and mapped by each of its processes. It has no name, and cannot be made shorter.

    A row is the load that its process has on workers, and a ring of what it chose.
    """

    descriptor: int
    rows: Sequence[tuple[Words, Words]] = field(factory=tuple)

    @classmethod
    def create(cls, count: int) -> "Board":
        """Memory for so many processes; raises `OSError`."""
        size = (_HEAD_WORDS + count * _ROW_WORDS) * _WORD
        descriptor = _nameless(size)
        words = memoryview(mmap.mmap(descriptor, size)).cast("q")
        words[0] = _MARK
        return cls(descriptor, _rows(words))

    @classmethod
    def adopt(cls, descriptor: int) -> "Board":
        """The memory behind a descriptor that this process was started with.

        Raises:
            BoardError: it is none, or of another layout.
        """
        try:
            size = os.fstat(descriptor).st_size
            count, rest = divmod(size // _WORD - _HEAD_WORDS, _ROW_WORDS)
            if rest or size % _WORD or not 0 < count <= _MOST_ROWS:
                raise BoardError(f"descriptor {descriptor} has the wrong length")
            words = memoryview(mmap.mmap(descriptor, size)).cast("q")
        except (OSError, ValueError, OverflowError) as error:
            raise BoardError(f"descriptor {descriptor}: {error}") from None
        if words[0] != _MARK:
            raise BoardError(f"descriptor {descriptor} has another layout")
        return cls(descriptor, _rows(words))

    def wipe(self, place: int) -> None:
        """Take note that the process of a row has ended: nothing that it had is on any worker."""
        wipe(self.rows[place][0])

    def close(self) -> None:
        """Give the descriptor back; what is mapped stays as long as it is used."""
        os.close(self.descriptor)


def _nameless(size: int) -> int:
    """A file of a length, which is only in memory where the system has such."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            return os.dup(file.fileno())
    descriptor = os.memfd_create("disagg-kernel-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    # a process that reads behind the end of a file that was cut would be killed
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def _rows(words: Words) -> Sequence[tuple[Words, Words]]:
    starts = range(_HEAD_WORDS, len(words), _ROW_WORDS)
    return [(words[start : start + SLOTS_WORDS], words[start + SLOTS_WORDS : start + _ROW_WORDS]) for start in starts]


def own_place() -> int:
    """This process's place among those of its port, from 0; 0 as well if there are no others."""
    given = inherited()
    return 0 if given is None else given[1]


@cache
def inherited() -> tuple[Board, int] | None:
    """The memory that this process was given, and its row; None in one that serves alone."""
    if BOARD not in os.environ:
        return None
    try:
        descriptor, place = map(int, os.environ[BOARD].split(":"))
        board = Board.adopt(descriptor)
        if not 0 <= place < len(board.rows):
            raise BoardError(f"there is no row {place}")
    except (ValueError, BoardError) as error:
        log.warning("board.unusable", error=str(error))
        return None
    return board, place
