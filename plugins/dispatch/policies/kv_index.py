"""Which blocks are in the caches of which workers, as the workers themselves tell."""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Final, TypeAlias

from attrs import define, field

TIERS: Final = 256
"""Places of one worker that are told apart."""

Tier: TypeAlias = tuple[int, str | None, int | None]
"""A place where a worker has blocks: the rank, the medium, and the part of the model."""

ANYWHERE: Final[Tier] = (0, None, None)


@define(eq=False)
class KvIndex:
    """The workers that have each block, as sets of their indexes; a block's number stands for all before it too.

    `sizes` counts workers by how many tokens their blocks have.
    """

    holders: dict[int, int] = field(factory=dict, init=False)
    sizes: Counter[int] = field(factory=Counter, init=False)

    def add(self, number: int, bit: int) -> None:
        """Note that a worker has a block."""
        self.holders[number] = self.holders.get(number, 0) | bit

    def discard(self, number: int, bit: int) -> None:
        """Note that a worker has a block no longer."""
        left = self.holders.get(number, 0) & ~bit
        if left:
            self.holders[number] = left
        else:
            self.holders.pop(number, None)


@define(eq=False)
class Holding:
    """What one worker has. It has its own name for each block, whose number here it need not know.

    `limit` blocks at most: of a worker that names more, those that it named first are forgotten. `size` is how many
    tokens it has in a block, once that is known.
    """

    index: KvIndex
    place: int
    limit: int
    size: int | None = field(default=None, init=False)
    _tiers: dict[Tier, OrderedDict[Hashable, int]] = field(factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def __len__(self) -> int:
        return self._count

    def resize(self, size: int | None) -> None:
        """Take note of how many tokens the worker has in a block."""
        if size == self.size:
            return
        for known, change in ((self.size, -1), (size, 1)):
            if known is not None:
                self.index.sizes[known] += change
                if not self.index.sizes[known]:
                    del self.index.sizes[known]
        self.size = size

    def store(self, name: Hashable, number: int, tier: Tier = ANYWHERE) -> None:
        """Take note of a block."""
        blocks = self._tiers.get(tier)
        if blocks is None:
            if len(self._tiers) >= TIERS:
                return
            blocks = self._tiers[tier] = OrderedDict()
        old = blocks.get(name)
        if old is None:
            self._count += 1
        elif old != number:
            self.index.discard(old, 1 << self.place)
        blocks[name] = number
        self.index.add(number, 1 << self.place)
        while self._count > self.limit:
            self._drop_oldest()

    def remove(self, name: Hashable, tier: Tier = ANYWHERE) -> None:
        """Take note that a block is gone from one place; nothing happens if it was not known."""
        blocks = self._tiers.get(tier)
        number = blocks.pop(name, None) if blocks else None
        if number is not None:
            self._count -= 1
            if not any(name in others for others in self._tiers.values()):
                self.index.discard(number, 1 << self.place)

    def number(self, name: Hashable) -> int | None:
        """The number of a block that the worker has."""
        for blocks in self._tiers.values():
            number = blocks.get(name)
            if number is not None:
                return number
        return None

    def clear(self, rank: int | None = None) -> None:
        """Forget everything, or all that one rank has."""
        for tier in [tier for tier in self._tiers if rank is None or tier[0] == rank]:
            for name in tuple(self._tiers[tier]):
                self.remove(name, tier)
            del self._tiers[tier]

    def _drop_oldest(self) -> None:
        tier, blocks = next((tier, blocks) for tier, blocks in self._tiers.items() if blocks)
        self.remove(next(iter(blocks)), tier)
