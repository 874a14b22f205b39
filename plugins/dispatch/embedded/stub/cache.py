"""The prefix cache of a worker: which blocks of prompts it has seen and still has."""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import islice

from attrs import define, field, frozen

_CAPACITY = 16_384
_REMEMBERED = 4_096


@frozen
class Block:
    """A run of tokens after what came before them, told by its key and that of the block before it."""

    key: int
    parent: int | None
    tokens: tuple[int, ...]


@define(eq=False)
class PrefixCache:
    """Full blocks of prompts, the longest unused of which are forgotten first."""

    tokens_per_block: int
    capacity: int = _CAPACITY
    _blocks: OrderedDict[int, Block] = field(factory=OrderedDict, init=False)
    events: deque[tuple[str, Block]] = field(factory=lambda: deque[tuple[str, Block]](maxlen=_REMEMBERED), init=False)

    def match(self, prompt: Sequence[int]) -> int:
        """Count the tokens of a prompt that need no computing; the last one always does."""
        matched = 0
        for block in self._chain(prompt[:-1]):
            if block.key not in self._blocks:
                break
            self._blocks.move_to_end(block.key)
            matched += self.tokens_per_block
        return matched

    def keep(self, prompt: Sequence[int]) -> int:
        """Keep the full blocks of a prompt; count the tokens in those that were not there."""
        created = 0
        for block in self._chain(prompt):
            if block.key not in self._blocks:
                created += self.tokens_per_block
                self._blocks[block.key] = block
                self.events.append(("stored", block))
            self._blocks.move_to_end(block.key)
        while len(self._blocks) > self.capacity:
            self.events.append(("removed", self._blocks.popitem(last=False)[1]))
        return created

    def _chain(self, prompt: Sequence[int]) -> Iterator[Block]:
        size = self.tokens_per_block
        parent: int | None = None
        for start in range(0, len(prompt) - size + 1, size):
            tokens = tuple(islice(prompt, start, start + size))
            key = hash((parent, tokens))
            yield Block(key, parent, tokens)
            parent = key
