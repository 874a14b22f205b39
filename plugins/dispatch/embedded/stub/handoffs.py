"""The KV blocks that a context worker holds until a generation worker fetches them or they expire."""

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from secrets import token_bytes

from attrs import define, field, frozen

from plugins.dispatch.embedded.stub.ledger import HandoffCounts

# Above what a double holds exactly, so that an id that went through one no longer matches.
_FIRST_ID = (1 << 53) + 1
_REMEMBERED = 1_000


class HandoffError(Exception):
    """A fetch that cannot be answered; `status` is that of the side endpoint."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@frozen(eq=False)
class Handoff:
    """One prompt's blocks, named by an id and an opaque state that only the holder can read."""

    ctx_request_id: int
    disagg_request_id: int
    opaque_state: str
    prompt: tuple[int, ...]
    blocks: int
    timer: asyncio.TimerHandle


@define(eq=False)
class HandoffStore:
    """Holds blocks, gives each handoff away exactly once, and counts what nobody fetched."""

    hold_seconds: float
    tokens_per_block: int
    notify: Callable[[], None]
    leaked_blocks: int = 0
    _held: dict[int, Handoff] = field(factory=dict, init=False)
    _ended: dict[int, str] = field(factory=dict, init=False)
    _endings: Counter[str] = field(factory=Counter, init=False)
    _ids: "count[int]" = field(factory=lambda: count(_FIRST_ID, 2), init=False)

    @property
    def held_blocks(self) -> int:
        """How many blocks wait for a fetch."""
        return sum(handoff.blocks for handoff in self._held.values())

    def counts(self) -> HandoffCounts:
        """Count the handoffs by what became of them."""
        return HandoffCounts(held=len(self._held), **self._endings)

    def holds(self, disagg_request_id: int) -> bool:
        """Whether a handoff of this id waits for a fetch."""
        return any(handoff.disagg_request_id == disagg_request_id for handoff in self._held.values())

    def hold(self, disagg_request_id: int, prompt: Sequence[int]) -> Handoff:
        """Hold the blocks of a prompt."""
        number = next(self._ids)
        state = b64encode(b"\xfb\xff\xfe" + number.to_bytes(8) + token_bytes(21)).decode()
        timer = asyncio.get_running_loop().call_later(self.hold_seconds, self._expire, number)
        blocks = -(-len(prompt) // self.tokens_per_block)
        handoff = Handoff(number, disagg_request_id, state, tuple(prompt), blocks, timer)
        self._held[number] = handoff
        self.notify()
        return handoff

    def fetch(self, ctx_request_id: int, opaque_state: str, prompt: Sequence[int]) -> None:
        """Give the blocks of a handoff away, once.

        Raises `HandoffError`: 404 for one that is not held, 403 for a state that is not its own, 409 for
        another prompt. The latter two leave the blocks where they are.
        """
        handoff = self._held.get(ctx_request_id)
        if handoff is None:
            raise HandoffError(404, f"request {ctx_request_id} is {self._ended.get(ctx_request_id, 'unknown')}")
        if handoff.opaque_state != opaque_state:
            raise HandoffError(403, f"the state is not that of request {ctx_request_id}")
        if handoff.prompt != tuple(prompt):
            raise HandoffError(409, f"the prompt is not that of request {ctx_request_id}")
        self._end(handoff, "fetched")

    def drop(self, handoff: Handoff) -> None:
        """Release a handoff whose answer nobody got; one that has ended already stays as it is."""
        if handoff.ctx_request_id in self._held:
            self._end(handoff, "dropped")

    def forget(self) -> None:
        """Release everything and forget the counts, as a process that ends does."""
        for handoff in self._held.values():
            handoff.timer.cancel()
        self._held.clear()
        self._ended.clear()
        self._endings.clear()
        self.leaked_blocks = 0
        self.notify()

    def _expire(self, ctx_request_id: int) -> None:
        handoff = self._held[ctx_request_id]
        self.leaked_blocks += handoff.blocks
        self._end(handoff, "expired")

    def _end(self, handoff: Handoff, ending: str) -> None:
        handoff.timer.cancel()
        del self._held[handoff.ctx_request_id]
        self._endings[ending] += 1
        self._ended[handoff.ctx_request_id] = ending
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self.notify()
