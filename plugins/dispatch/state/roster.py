"""A pool's roster in one of several processes, in which the others' load counts as well, and its policy's choices."""

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b

from attrs import define, field

from plugins.board import inherited
from plugins.dispatch.policy import Policy, TellsChoices, Weighs
from plugins.dispatch.roster import Roster
from plugins.dispatch.shares import Shares
from plugins.dispatch.state.siblings import Entry, Hear, Siblings
from plugins.dispatch.worker import Role, Worker


@cache
def siblings() -> Siblings | None:
    """The other processes on this one's port, None if it serves alone."""
    given = inherited()
    return None if given is None else Siblings(*given)


def make_roster(
    name: str, policy: Policy, shares: Shares, *listeners: Callable[[Worker], None], company: Siblings | None = None
) -> Roster:
    """The roster of a pool of that name; its policy hears of other processes if there are any."""
    unit = policy.unit if isinstance(policy, Weighs) else 1
    company = company or siblings()
    if company is None:
        return Roster(shares, unit, *listeners)
    roster = SharedRoster(shares, unit, *listeners, company=company, name=f"{name} {type(policy).__qualname__}")
    if isinstance(policy, TellsChoices):
        roster.heard = policy.heard
        policy.join(roster)
    return roster


def pool_name(model: str, role: Role) -> str:
    """What a pool is called in every process."""
    return f"{role} {model}"


@define(eq=False)
class SharedRoster(Roster):
    """Workers of a pool with the same `name` in other processes are the same workers, if their URL is.

    What other processes have on a worker is part of its load and work here. `heard` is told what they chose.
    """

    company: Siblings = field(kw_only=True)
    name: str = field(kw_only=True)
    heard: Hear | None = field(default=None, init=False)
    _shared: dict[Worker, Entry] = field(factory=dict, init=False)

    def add(self, worker: Worker) -> None:
        """Bring a worker in, and tell the others what it is given."""
        super().add(worker)
        key = blake2b(f"{self.name} {self.unit} {worker.url}".encode(), digest_size=8).digest()
        entry = Entry(int.from_bytes(key, signed=True), worker, self._lend, self.heard)
        first = not self._shared
        self._shared[worker] = entry
        self.company.enter(entry, first=first)

    def remove(self, worker: Worker) -> None:
        """Let a worker go for good."""
        if self.has(worker):
            self._part(worker)
        super().remove(worker)

    def close(self) -> None:
        """Let nobody take requests any more."""
        super().close()
        for worker in tuple(self._shared):
            self._part(worker)

    def charge(self, worker: Worker, work: int, requests: int = 1) -> None:
        """Count a request in or out, and tell the others."""
        super().charge(worker, work, requests)
        entry = self._shared.get(worker)
        if entry is not None:
            entry.load += requests
            entry.work += work
            self.company.put(entry)

    def tell(self, worker: Worker, kind: int, numbers: Sequence[int]) -> int:
        """Tell the others what a worker was chosen for."""
        entry = self._shared.get(worker)
        return 0 if entry is None else self.company.tell(entry, kind, numbers)

    def hear(self) -> None:
        """Have what the others chose told to all policies of this process."""
        self.company.hear()

    def _part(self, worker: Worker) -> None:
        entry = self._shared.pop(worker, None)
        if entry is not None:
            self.company.leave(entry)

    def _lend(self, worker: Worker, load: int, work: int) -> None:
        super().charge(worker, work, load)
