"""The load of one process on workers: a slot for each worker, with its key, its requests and what they weigh."""

from collections.abc import Iterator
from typing import Final

from attrs import define, field

SLOTS: Final = 16_384
"""Workers of all pools of a process; of more, what it has on them is not told."""

_SLOT: Final = 3
SLOTS_WORDS: Final = 1 + SLOTS * _SLOT


@define(eq=False)
class Slots:
    """The only writer of a row's loads; begins with none, whatever a process that is gone has left there."""

    words: memoryview
    _free: list[int] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        wipe(self.words)

    def take(self, key: int) -> int | None:
        """A slot for a worker, as its place in the memory; None if all are taken."""
        words = self.words
        if self._free:
            slot = self._free.pop()
        elif words[0] < SLOTS:
            slot = 1 + words[0] * _SLOT
            words[0] += 1
        else:
            return None
        words[slot] = key
        return slot

    def put(self, slot: int, load: int, work: int) -> None:
        """Say how many requests are on a worker, and what they weigh."""
        self.words[slot + 1] = load
        self.words[slot + 2] = work

    def give_back(self, slot: int) -> None:
        """Be done with a worker."""
        self.put(slot, 0, 0)  # first, so that nobody takes its load for that of the next one
        self.words[slot] = 0
        self._free.append(slot)


def wipe(words: memoryview) -> None:
    """Leave no load in a row."""
    used = min(max(words[0], 0), SLOTS)
    words[0] = 0
    end = 1 + used * _SLOT
    words[1:end] = memoryview(bytes((end - 1) * words.itemsize)).cast("q")


def load_bytes(words: memoryview) -> bytes:
    """A copy of the slots that are in use in somebody's row, to be compared and read."""
    return words[1 : 1 + min(max(words[0], 0), SLOTS) * _SLOT].tobytes()


def loads_in(copy: bytes) -> Iterator[tuple[int, int, int]]:
    """Each worker's key, requests and weight in such a copy, if it has any."""
    words = memoryview(copy).cast("q").tolist()
    for key, load, work in zip(words[0::_SLOT], words[1::_SLOT], words[2::_SLOT], strict=True):
        if load > 0 and work > 0:
            yield key, load, work
