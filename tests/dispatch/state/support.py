"""Several processes in one: each has a policy and a roster of the same pool, and its row of the same memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, evolve, field

from plugins.board import Board
from plugins.dispatch.policy import Facts, HearsLeaving, Policy
from plugins.dispatch.roster import Roster
from plugins.dispatch.shares import Shares
from plugins.dispatch.state.roster import make_roster
from plugins.dispatch.state.siblings import Siblings
from plugins.dispatch.worker import Worker
from tests.dispatch.policies.support import Held, send


@define(eq=False)
class Process:
    """One of them. It hears of load when it is told to, or from its timer."""

    company: Siblings
    policy: Policy
    roster: Roster = field(init=False)

    def __attrs_post_init__(self) -> None:
        left = self.policy.left if isinstance(self.policy, HearsLeaving) else lambda _worker: None
        self.roster = make_roster("pool", self.policy, Shares(), lambda _worker: None, left, company=self.company)

    def add(self, count: int) -> "Process":
        """Bring in workers that are up."""
        for number in range(count):
            self.roster.add(Worker(f"http://w{number}:8000", 0, up=True))
        return self

    def send(self, facts: Facts | None = None) -> Held:
        """One request."""
        return send(self.policy, self.roster, facts)

    def sees(self) -> list[tuple[int, int]]:
        """The load on each worker, as it is known here now."""
        self.company.borrow()
        return [(worker.load, worker.work) for worker in self.roster.known()]


@contextmanager
def processes(policy: Any, workers: int, count: int = 2) -> Iterator[tuple[Board, list[Process]]]:
    """So many of them, with so many workers each."""
    board = Board.create(count)
    started = [Process(Siblings(board, place), evolve(policy)).add(workers) for place in range(count)]
    try:
        yield board, started
    finally:
        for process in started:
            process.roster.close()
        board.close()
