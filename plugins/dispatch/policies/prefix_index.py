"""Which workers have which blocks of prompts, as far as one can know, and what is remembered is bounded."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from attrs import define, field


def groups(holders: Mapping[int, int], blocks: Sequence[int], mask: int) -> list[tuple[int, int]]:
    """Those of a set of workers that have a beginning of a prompt, by its length in blocks, the longest first."""
    found: list[tuple[int, int]] = []
    if not mask:
        return found
    for depth, block in enumerate(blocks):
        deeper = holders.get(block, 0) & mask
        if deeper != mask:
            if depth:
                found.append((depth, mask & ~deeper))
            mask = deeper
            if not mask:
                break
    else:
        if blocks:
            found.append((len(blocks), mask))
    found.reverse()
    return found


@define(eq=False)
class PrefixIndex:
    """The blocks that were used last, `limit` of them, each with the set of workers that have it.

    As the number of a block stands for all that comes before it, this is a tree without being built as one. A
    block was used no later than the one before it, so that what is forgotten first are always leaves.
    """

    limit: int
    _holders: OrderedDict[int, int] = field(factory=OrderedDict, init=False)

    def __len__(self) -> int:
        return len(self._holders)

    def groups(self, blocks: Sequence[int], mask: int) -> list[tuple[int, int]]:
        """Those of a set of workers that have a beginning of a prompt; see the function of that name."""
        return groups(self._holders, blocks, mask)

    def add(self, blocks: Sequence[int], index: int) -> None:
        """Note that a worker has, or will soon have, all blocks of a prompt."""
        bit = 1 << index
        holders = self._holders
        for block in reversed(blocks):
            holders[block] = holders.get(block, 0) | bit
            holders.move_to_end(block)
        while len(holders) > self.limit:
            holders.popitem(last=False)

    def evict(self, index: int) -> None:
        """Forget all that a worker has."""
        rest = ~(1 << index)
        kept = OrderedDict((block, mask & rest) for block, mask in self._holders.items() if mask & rest)
        self._holders = kept
