"""What `kv_events` knows while it runs: who has which blocks, and which worker each conversation was sent to."""

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import define, field

from plugins.board import NUMBERS, Record
from plugins.dispatch.candidates import Turn
from plugins.dispatch.policies.kv_index import Holding, KvIndex
from plugins.dispatch.policies.kv_prompt import KvPrompt, Preparation
from plugins.dispatch.policies.kv_sources import KvSource
from plugins.dispatch.policies.pins import Pins
from plugins.dispatch.policies.prefix_index import groups
from plugins.dispatch.policy import Choices, Site
from plugins.dispatch.worker import Worker

PINNED: Final = 1
STORED: Final = 2
REMOVED: Final = 3
"""What other processes are told: that a worker has a conversation, that it has blocks, or has them no longer."""

_RECENT: Final = 4096
_MASK: Final = (1 << 64) - 1


@define(eq=False)
class KvState:
    """Of one pool's policy. Of each worker `limit` blocks are remembered, whose numbers may be `unsigned`."""

    preparation: Preparation
    pins: Pins
    limit: int
    unsigned: bool
    index: KvIndex = field(factory=KvIndex)
    holdings: dict[Worker, Holding] = field(factory=dict)
    turn: Turn = field(factory=Turn)
    site: Site | None = None
    source: KvSource | None = None
    choices: Choices | None = None
    _pinned: dict[int, int] = field(factory=dict, init=False)  # when, of late: whoever did it last is right

    def holding(self, worker: Worker) -> Holding:
        """What is known of a worker's cache."""
        holding = self.holdings.get(worker)
        if holding is None:
            holding = self.holdings[worker] = Holding(self.index, worker.index, self.limit)
        return holding

    def groups(self, prompt: KvPrompt, mask: int, unit: int) -> list[tuple[float, int]]:
        """Workers of a set by how much of the prompt they have, in blocks of `unit` tokens, the most first."""
        found = [
            (prompt.cached(depth, size) / unit, holders)
            for size, blocks in prompt.blocks.items()
            for depth, holders in groups(self.index.holders, blocks, mask)
        ]
        if len(prompt.blocks) > 1:
            found.sort(reverse=True)
        return found

    def announce(self, number: int | None, worker: Worker) -> None:
        """Tell other processes where a conversation is, if it was not there before."""
        if self.choices is not None and number is not None and self.pins.get(number) is not worker:
            if len(self._pinned) >= _RECENT:
                self._pinned.clear()
            self._pinned[number] = self.choices.tell(worker, PINNED, (number,))

    def route(self, worker: Worker, blocks: Sequence[int]) -> None:
        """Take blocks that a worker was sent for what it has."""
        holding = self.holding(worker)
        if self.choices is not None:
            fresh = [number for number in blocks if holding.number(number) is None]
            self._tell(worker, STORED, fresh)
        for number in blocks:
            holding.store(number, number)

    def pass_on(self, worker: Worker, stored: Sequence[int], removed: Sequence[int]) -> None:
        """Tell other processes what a worker told this one."""
        self._tell(worker, STORED, stored)
        self._tell(worker, REMOVED, removed)

    def hear(self, worker: Worker, record: Record) -> None:
        """Know what another process knows."""
        if record.kind == PINNED:
            for number in record.numbers:
                if record.since >= self._pinned.get(number, 0):
                    self.pins.put(number, worker)
        elif record.kind in (STORED, REMOVED):
            holding = self.holding(worker)
            for number in self._own(record.numbers):
                if record.kind == STORED:
                    holding.store(number, number)
                else:
                    holding.remove(number)

    def forget(self, worker: Worker) -> None:
        """Be done with a worker that is gone."""
        holding = self.holdings.pop(worker, None)
        if holding is not None:
            holding.clear()
            holding.resize(None)
        self.pins.evict(worker)

    def _tell(self, worker: Worker, kind: int, numbers: Sequence[int]) -> None:
        if self.choices is None:
            return
        signed = [number - (1 << 64) if number >> 63 > 0 else number for number in numbers]
        for start in range(0, len(signed), NUMBERS):
            self.choices.tell(worker, kind, signed[start : start + NUMBERS])

    def _own(self, numbers: Iterable[int]) -> Iterable[int]:
        return (number & _MASK for number in numbers) if self.unsigned else numbers
