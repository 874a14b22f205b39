"""What one process chose of late: records in a ring, written by that process and read by all others at their leisure.

A position counts all words that were ever written. Two words in front say where the oldest whole record begins and
where the newest one ends. What is about to be written over is taken out before, so that a reader can tell afterwards
whether what it copied was whole.
"""

from array import array
from collections.abc import Iterator, Sequence
from time import monotonic_ns
from typing import Final

from attrs import define, field, frozen

SPACE: Final = 1 << 16
"""Words of eight bytes: about 10,000 conversations, or 64 prompts of more than 1,000 blocks."""

NUMBERS: Final = 4096
"""Numbers in a record."""

_TAIL, _HEAD, _FIRST = 0, 1, 2
_FRONT: Final = 3
RING_WORDS: Final = _FIRST + SPACE


@frozen
class Record:
    """A choice: of what kind, when by the monotonic clock in nanoseconds, for which worker, and of what."""

    kind: int
    since: int
    key: int
    numbers: Sequence[int]


@define(eq=False)
class Ring:
    """The only writer; goes on behind what a process has left that had the row before."""

    words: memoryview

    def __attrs_post_init__(self) -> None:
        tail, head = self.words[_TAIL], self.words[_HEAD]
        if not 0 <= tail <= head <= tail + SPACE:
            self.words[_TAIL] = self.words[_HEAD] = 0

    def append(self, kind: int, key: int, numbers: Sequence[int]) -> int:
        """Write a record, and return when that was."""
        words, since = self.words, monotonic_ns()
        record = array("q", (kind << 32 | min(len(numbers), NUMBERS), since, key))
        record.extend(numbers[:NUMBERS])
        head = words[_HEAD]
        end = head + len(record)
        self._make_room(head, end)
        start = head % SPACE
        rest = max(0, start + len(record) - SPACE)
        with memoryview(record) as fresh:
            kept = len(record) - rest
            words[_FIRST + start : _FIRST + start + kept] = fresh[:kept]
            words[_FIRST : _FIRST + rest] = fresh[kept:]
        words[_HEAD] = end
        return since

    def _make_room(self, head: int, end: int) -> None:
        words = self.words
        tail = words[_TAIL]
        while end - tail > SPACE:
            tail += _FRONT + (words[_FIRST + tail % SPACE] & 0xFFFFFFFF)
        words[_TAIL] = min(tail, head)


@define(eq=False)
class Reel:
    """A reader of somebody's ring, who begins with the oldest record that is left."""

    words: memoryview
    position: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.position = self.words[_TAIL]

    @property
    def behind(self) -> bool:
        """Whether there is anything new."""
        return bool(self.words[_HEAD] != self.position)

    def read(self) -> Iterator[Record]:
        """The records since the last time; those that were written over meanwhile are lost."""
        head = self.words[_HEAD]
        start = max(self.position, self.words[_TAIL])
        copy = self._copy(start, head) if 0 <= head - start <= SPACE else []
        self.position = head
        # what was written over while it was copied does not begin with a whole record
        place = max(0, self.words[_TAIL] - start)
        while place + _FRONT <= len(copy):
            front, since, key = copy[place : place + _FRONT]
            end = place + _FRONT + (front & 0xFFFFFFFF)
            if not 0 <= front >> 32 < 256 or end > len(copy):
                return  # garbage, which costs a hint and nothing more
            yield Record(front >> 32, since, key, copy[place + _FRONT : end])
            place = end

    def _copy(self, start: int, head: int) -> list[int]:
        first, end = start % SPACE, head % SPACE
        if head == start:
            return []
        if first < end:
            return self.words[_FIRST + first : _FIRST + end].tolist()
        return self.words[_FIRST + first :].tolist() + self.words[_FIRST : _FIRST + end].tolist()
