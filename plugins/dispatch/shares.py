"""Which share of the work each worker should have: its weight, and less for a while when it has just come in."""

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Final, TypeAlias

from attrs import define, field

from plugins.dispatch.worker import Worker

STEPS: Final = 10
"""In how many steps a share grows to its whole."""


Step: TypeAlias = tuple[float, int, Worker, int]
"""When the next step is due, a number that no other one has, whose it is, and which one comes before it."""


@define(eq=False)
class Shares:
    """The shares of those that take requests. `version` changes whenever one of them does.

    They are `uniform` while all have the same one, and `total` together. `due` are the next steps of those that grow,
    the first one first.

    A worker that comes back, or that comes in when others have been serving for a while, has a tenth of its
    share at first and its whole after `slow_start_seconds`.
    """

    slow_start_seconds: float = 0.0
    clock: Callable[[], float] = monotonic
    version: int = field(default=0, init=False)
    uniform: bool = field(default=True, init=False)
    total: float = field(default=0.0, init=False)
    due: list[Step] = field(factory=list, init=False)
    _count: Counter[float] = field(factory=Counter, init=False)
    _growing: dict[Worker, Step] = field(factory=dict, init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)
    _seen: set[Worker] = field(factory=set, init=False)
    _began: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._began = self.clock()

    def enter(self, worker: Worker, *, eased: bool = True) -> None:
        """Give a worker a share, a small one at first if it is late and to be `eased` in."""
        late = worker in self._seen or self.clock() - self._began > self.slow_start_seconds
        self._seen.add(worker)
        worker.share = worker.weight
        self._add(worker.share)
        if eased and late and self.slow_start_seconds:
            self._lower(worker, 1, self.clock())

    def leave(self, worker: Worker) -> None:
        """Take a worker's share away."""
        self._growing.pop(worker, None)
        self._discard(worker.share)

    def reweigh(self, worker: Worker, weight: float) -> None:
        """Give one that has a share another weight."""
        entry = self._growing.get(worker)
        self._discard(worker.share)
        worker.weight = weight
        worker.share = weight if entry is None else weight * entry[3] / STEPS
        self._add(worker.share)

    def forget(self, worker: Worker) -> None:
        """Be done with a worker for good."""
        self._seen.discard(worker)

    def ease(self, worker: Worker, seconds: float = 0.0) -> None:
        """Halve a worker's share, unless it is as small already; after `seconds` it grows as that of a new one does."""
        if self.slow_start_seconds and worker.share > worker.weight / 2:
            self._lower(worker, STEPS // 2, self.clock() + seconds)

    def grow(self) -> list[Worker]:
        """Take the steps that are due, and say whose shares changed."""
        now, changed = self.clock(), []
        while self.due and self.due[0][0] <= now:
            entry = heappop(self.due)
            due, _, worker, step = entry
            if self._growing.get(worker) is entry:  # else it left, or began anew
                self._lower(worker, step + 1, due)
                changed.append(worker)
        return changed

    def _lower(self, worker: Worker, step: int, since: float) -> None:
        """Give a worker so many tenths of its weight, and have the next step due."""
        self._discard(worker.share)
        worker.share = worker.weight * step / STEPS if step < STEPS else worker.weight
        self._add(worker.share)
        if step < STEPS:
            entry = (since + self.slow_start_seconds / STEPS, next(self._numbers), worker, step)
            self._growing[worker] = entry
            heappush(self.due, entry)
        else:
            self._growing.pop(worker, None)

    def _add(self, share: float) -> None:
        self._count[share] += 1
        self._note_change()

    def _discard(self, share: float) -> None:
        self._count[share] -= 1
        if not self._count[share]:
            del self._count[share]
        self._note_change()

    def _note_change(self) -> None:
        self.version += 1
        self.uniform = len(self._count) <= 1
        self.total = sum(share * count for share, count in self._count.items())
