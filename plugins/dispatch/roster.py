"""Who of a pool takes requests, and in which order of load."""

from bisect import insort
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from attrs import define, field

from plugins.dispatch.levels import Levels
from plugins.dispatch.shares import Shares
from plugins.dispatch.worker import Worker

if TYPE_CHECKING:
    from plugins.dispatch.candidates import Candidates


def _tell_nobody(_worker: Worker) -> None:
    """Do nothing."""


@define(eq=False)
class Roster:
    """Kept as workers come and go and are given work, so that a choice does not have to look at each of them.

    `members` take requests: they are up, not ejected, and do not drain. They are in the order of the configuration,
    and in `mask` as a set of their indexes. `total` is the work on all of them. `changes` counts workers, up or
    not, that were brought in, let go or given another weight. A member's height is the work on it and `unit` more,
    which is what a request usually weighs, in proportion to its share. `turned` hears when a worker begins or ceases
    to be a member, `left` when it is gone for good. `places` has each worker at its index, or None, and
    `everyone` the members as candidates until there are others.
    """

    shares: Shares = field(factory=Shares)
    unit: int = 1
    turned: Callable[[Worker], None] = _tell_nobody
    left: Callable[[Worker], None] = _tell_nobody
    members: list[Worker] = field(factory=list, init=False)
    mask: int = field(default=0, init=False)
    total: int = field(default=0, init=False)
    changes: int = field(default=0, init=False)
    places: list[Any] = field(factory=list, init=False)
    everyone: "Candidates | None" = field(default=None, init=False)
    _by_url: dict[str, Worker] = field(factory=dict, init=False)
    _levels: Levels | None = field(default=None, init=False)

    def add(self, worker: Worker) -> None:
        """Bring a worker in, on the first place that is free."""
        if None in self.places:
            worker.index = self.places.index(None)
            self.places[worker.index] = worker
        else:
            worker.index = len(self.places)
            self.places.append(worker)
        self._by_url[worker.url] = worker
        self.changes += 1
        self.refresh(worker)

    def remove(self, worker: Worker) -> None:
        """Let a worker go for good; what is reserved on it is still given back to it."""
        if not self.has(worker):
            return
        self._leave(worker)
        self.places[worker.index] = None
        del self._by_url[worker.url]
        self.changes += 1
        self.shares.forget(worker)
        self.left(worker)

    def refresh(self, worker: Worker, *, eased: bool = True) -> None:
        """Take note that a worker went up or down, or was ejected or admitted; who comes back is `eased` in."""
        if worker.up is True and not worker.draining and worker.circuit.allows and self.has(worker):
            self._enter(worker, eased=eased)
        else:
            self._leave(worker)

    def drain(self, worker: Worker, *, draining: bool = True, by: str = "policy", eased: bool = True) -> None:
        """Give a worker no new requests, or some again once nobody drains it; those that it has go on."""
        before = worker.draining
        (worker.drained_by.add if draining else worker.drained_by.discard)(by)
        if worker.draining is not before:
            self.refresh(worker, eased=eased)

    def reweigh(self, worker: Worker, weight: float) -> None:
        """Give a worker another weight; one that is new grows on from where it is."""
        if worker.weight == weight:
            return
        self.changes += 1
        if self.takes(worker):
            self.shares.reweigh(worker, weight)
            self._settle(worker)
        else:
            worker.weight = weight

    def ease(self, worker: Worker, seconds: float = 0.0) -> None:
        """Halve the share of a worker that is under pressure; after `seconds` it grows as that of a new one does."""
        if self.takes(worker):
            self.shares.ease(worker, seconds)
            self._settle(worker)

    def close(self) -> None:
        """Let nobody take requests any more."""
        for worker in tuple(self.members):
            self._leave(worker)

    def has(self, worker: Worker) -> bool:
        """Whether a worker is one of this pool, up or not."""
        return worker.index < len(self.places) and self.places[worker.index] is worker

    def takes(self, worker: Worker) -> bool:
        """Whether a worker takes requests."""
        return bool(self.mask >> worker.index & 1) and self.places[worker.index] is worker

    def at(self, index: int) -> Worker:
        """The worker on a place.

        Raises:
            LookupError: there is none.
        """
        worker: Worker | None = self.places[index]
        if worker is None:
            raise LookupError(f"there is no worker at {index}")
        return worker

    def find(self, url: str) -> Worker | None:
        """The worker with that URL, up or not."""
        return self._by_url.get(url)

    def known(self) -> list[Worker]:
        """All workers, up or not."""
        return [worker for worker in self.places if worker is not None]

    def grow(self) -> None:
        """Let the shares of workers that are new grow; called before a choice if a step of one may be due."""
        for worker in self.shares.grow():
            self._settle(worker)

    def charge(self, worker: Worker, work: int, requests: int = 1) -> None:
        """Count a request in that weighs so much, at least 1; or several, which together do; or out, if negative."""
        worker.load += requests
        worker.work += work
        if self.mask >> worker.index & 1 and self.places[worker.index] is worker:
            self.total += work
            if self._levels is not None:
                self._levels.put(worker.index, (worker.work + self.unit) / worker.share)

    def discharge(self, worker: Worker, work: int) -> None:
        """Count a request out."""
        self.charge(worker, -work, -1)

    @property
    def levels(self) -> Levels:
        """The members by their height; kept from the first use on."""
        if self._levels is None:
            self._levels = Levels()
            for worker in self.members:
                self._settle(worker)
        return self._levels

    def _settle(self, worker: Worker) -> None:
        if self._levels is not None:
            self._levels.put(worker.index, (worker.work + self.unit) / worker.share)

    def _enter(self, worker: Worker, *, eased: bool) -> None:
        if self.takes(worker):
            return
        self.mask |= 1 << worker.index
        self.everyone = None
        insort(self.members, worker, key=attrgetter("index"))
        self.total += worker.work
        self.shares.enter(worker, eased=eased)
        self._settle(worker)
        self.turned(worker)

    def _leave(self, worker: Worker) -> None:
        if not self.takes(worker):
            return
        self.mask &= ~(1 << worker.index)
        self.everyone = None
        self.members.remove(worker)
        self.total -= worker.work
        self.shares.leave(worker)
        if self._levels is not None:
            self._levels.drop(worker.index)
        self.turned(worker)
