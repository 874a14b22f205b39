"""The KV blocks that a worker holds until another one fetches them or they expire."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from plugins.dispatch.embedded.stub.ledger import HandoffCounts

FETCHED = "fetched"
EXPIRED = "expired"
DROPPED = "dropped"
RELEASED = "released"

_REMEMBERED = 1_000

Key = int | str


@frozen(eq=False)
class Handoff:
    """One prompt's blocks, by the name under which they are fetched; `mark` is what a fetch must have right."""

    key: Key
    prompt: tuple[int, ...]
    blocks: int
    mark: object
    timer: asyncio.TimerHandle


@define(eq=False)
class HandoffStore:
    """Holds blocks, gives each handoff away exactly once, and counts what nobody fetched."""

    hold_seconds: float
    tokens_per_block: int
    notify: Callable[[], None]
    leaked_blocks: int = 0
    _held: dict[Key, Handoff] = field(factory=dict, init=False)
    _ended: dict[Key, str] = field(factory=dict, init=False)
    _endings: Counter[str] = field(factory=Counter, init=False)

    @property
    def held_blocks(self) -> int:
        """How many blocks wait for a fetch."""
        return sum(handoff.blocks for handoff in self._held.values())

    def counts(self) -> HandoffCounts:
        """Count the handoffs by what became of them."""
        return HandoffCounts(held=len(self._held), **self._endings)

    def blocks(self, prompt: Sequence[int]) -> int:
        """Count the blocks that a prompt needs."""
        return -(-len(prompt) // self.tokens_per_block)

    def hold(self, key: Key, prompt: Sequence[int], mark: object = None, seconds: float | None = None) -> Handoff:
        """Hold the blocks of a prompt, for the usual time or another one."""
        wait = self.hold_seconds if seconds is None else seconds
        timer = asyncio.get_running_loop().call_later(wait, self._expire, key)
        handoff = Handoff(key, tuple(prompt), self.blocks(prompt), mark, timer)
        self._held[key] = handoff
        self.notify()
        return handoff

    def find(self, key: Key) -> Handoff | None:
        """Give what is held under a name."""
        return self._held.get(key)

    def any(self, holds: Callable[[Handoff], bool]) -> bool:
        """Whether something of this kind is held."""
        return any(map(holds, self._held.values()))

    def ending(self, key: Key) -> str:
        """Say what became of what was held under a name; `unknown` if nothing was."""
        return self._ended.get(key, "unknown")

    def end(self, handoff: Handoff, ending: str) -> None:
        """Hold blocks no longer; what has ended already stays as it is."""
        if self._held.get(handoff.key) is not handoff:
            return
        handoff.timer.cancel()
        del self._held[handoff.key]
        self._endings[ending] += 1
        self._ended.pop(handoff.key, None)
        self._ended[handoff.key] = ending
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self.notify()

    def forget(self) -> None:
        """Release everything and forget the counts, as a process that ends does."""
        for handoff in self._held.values():
            handoff.timer.cancel()
        self._held.clear()
        self._ended.clear()
        self._endings.clear()
        self.leaked_blocks = 0
        self.notify()

    def expire(self, handoff: Handoff) -> None:
        """Count blocks as leaked and hold them no longer; what has ended already stays as it is."""
        if self._held.get(handoff.key) is handoff:
            self.leaked_blocks += handoff.blocks
            self.end(handoff, EXPIRED)

    def _expire(self, key: Key) -> None:
        self.expire(self._held[key])
