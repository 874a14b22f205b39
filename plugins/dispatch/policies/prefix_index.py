"""Which workers have which blocks of prompts, as far as one can know, and what is remembered is bounded."""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from attrs import define, field


def groups(holders: Mapping[int, int], blocks: Sequence[int], mask: int) -> list[tuple[int, int]]:
    """Those of a set of workers that have a beginning of a prompt, by its length in blocks, the longest first."""
    return _groups(zip(map(holders.get, blocks, repeat(0)), repeat(1)), mask)


@define(eq=False)
class Run:
    """Blocks that follow one another and are on the same workers, a set of indexes."""

    blocks: "array[int]"
    holders: int


def groups_of(path: Sequence[Run], mask: int) -> list[tuple[int, int]]:
    """As `groups`, of the runs that a prompt begins with."""
    return _groups(((run.holders, len(run.blocks)) for run in path), mask)


def _groups(parts: Iterable[tuple[int, int]], mask: int) -> list[tuple[int, int]]:
    """The same of the parts that a prompt is made of: who has each, and how many blocks it is."""
    found: list[tuple[int, int]] = []
    depth = 0
    for holders, size in parts:
        deeper = holders & mask
        if deeper != mask:
            if depth:
                found.append((depth, mask & ~deeper))
            mask = deeper
        if not mask:
            break
        depth += size
    if mask and depth:
        found.append((depth, mask))
    found.reverse()
    return found


@define(eq=False)
class PrefixIndex:
    """The blocks that were used last, `limit` of them, in runs.

    As the number of a block stands for all that comes before it, this is a tree without being built as one, and two
    prompts with the same number at a place are the same up to there. A block was used no later than the one before
    it, so that what is forgotten first are always leaves.
    """

    limit: int
    _count: int = field(default=0, init=False)
    _runs: dict[int, Run] = field(factory=dict, init=False)
    """By the first block of each."""
    _used: OrderedDict[Run, None] = field(factory=OrderedDict, init=False)
    """The one that was used last at the end."""

    def __len__(self) -> int:
        return self._count

    def follow(self, blocks: Sequence[int]) -> list[Run]:
        """The runs that a prompt begins with; one of which it has no more than the beginning is cut in two."""
        path, place, end, runs = list[Run](), 0, len(blocks), self._runs
        while place < end:
            run = runs.get(blocks[place])
            if run is None:
                break
            last = place + len(run.blocks) - 1
            if last >= end or blocks[last] != run.blocks[-1]:
                run = self._cut(run, blocks, place)
            path.append(run)
            place += len(run.blocks)
        return path

    def add(self, blocks: Sequence[int], path: Sequence[Run], index: int) -> None:
        """Note that a worker has, or will soon have, all blocks of a prompt that begins with the runs of `path`."""
        bit, known = 1 << index, 0
        for run in path:
            run.holders |= bit
            known += len(run.blocks)
        if known < len(blocks):
            self._enter(Run(array("q", blocks[known:]), bit))
        for run in reversed(path):
            if run in self._used:
                self._used.move_to_end(run)
        while self._count > self.limit:
            self._forget_oldest()

    def evict(self, index: int) -> None:
        """Forget all that a worker has."""
        rest = ~(1 << index)
        for run in tuple(self._used):
            run.holders &= rest
            if not run.holders:
                self._forget(run)

    def _cut(self, run: Run, blocks: Sequence[int], place: int) -> Run:
        """Make two of a run, and return what a prompt has of it at a place; the rest it has not."""
        mine, both = run.blocks, min(len(run.blocks), len(blocks) - place)
        size = 1 + bisect_left(range(1, both), x=True, key=lambda at: mine[at] != blocks[place + at])
        del self._runs[mine[0]]
        front = Run(mine[:size], run.holders)
        del mine[:size]
        self._count -= size
        self._name(run)
        self._enter(front)
        return front

    def _enter(self, run: Run) -> None:
        self._name(run)
        self._used[run] = None
        self._count += len(run.blocks)

    def _name(self, run: Run) -> None:
        other = self._runs.get(run.blocks[0])
        if other is not None:  # was heard of without what comes before it
            self._forget(other)
        self._runs[run.blocks[0]] = run

    def _forget(self, run: Run) -> None:
        del self._runs[run.blocks[0]], self._used[run]
        self._count -= len(run.blocks)

    def _forget_oldest(self) -> None:
        run, over = next(iter(self._used)), self._count - self.limit
        if over < len(run.blocks):
            del run.blocks[-over:]
            self._count -= over
        else:
            self._forget(run)
