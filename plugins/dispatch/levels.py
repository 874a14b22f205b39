"""Workers by how loaded they are: sets of workers, each an integer with one bit a worker, in order of their load.

A set of 1,000 workers takes 125 bytes, and two of them are intersected in less time than one attribute of each
worker would take to read.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from attrs import define, field


def next_in(mask: int, index: int) -> int:
    """The next index in a set that is not empty, behind `index`, from the start again after the last one."""
    behind = mask >> (index + 1)
    if behind:
        return index + (behind & -behind).bit_length()
    return (mask & -mask).bit_length() - 1


def indexes(mask: int) -> Iterator[int]:
    """The indexes in a set, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@define(eq=False)
class Levels:
    """Which workers are at which height. `heights` are those that have a worker, the lowest first."""

    heights: list[float] = field(factory=list, init=False)
    _at: dict[float, int] = field(factory=dict, init=False)
    _height: dict[int, float] = field(factory=dict, init=False)

    def put(self, index: int, height: float | None) -> None:
        """Move a worker to a height, or bring it in; or take it out, if there is none."""
        at, bit, old = self._at, 1 << index, self._height.get(index)
        if old == height:
            return
        if old is not None:
            left = at[old] ^ bit
            if left:
                at[old] = left
            else:
                del at[old], self.heights[bisect_left(self.heights, old)]
        if height is None:
            del self._height[index]
            return
        self._height[index] = height
        if height in at:
            at[height] |= bit
        else:
            at[height] = bit
            insort(self.heights, height)

    def drop(self, index: int) -> None:
        """Take a worker out; nothing happens if it is not in."""
        self.put(index, None)

    def height(self, index: int) -> float:
        """Where a worker is."""
        return self._height[index]

    def lowest(self, mask: int) -> tuple[float, int]:
        """Those of a set that are lowest, and their height; none of a set without workers that are in."""
        for height in self.heights:
            found = self._at[height] & mask
            if found:
                return height, found
        return 0.0, 0

    def up_to(self, limit: float) -> int:
        """All that are no higher than `limit`."""
        mask = 0
        for height in self.heights:
            if height > limit:
                break
            mask |= self._at[height]
        return mask
