"""Driving breakers alone: a roster of workers, a clock that is told the time, and attempts that end as told."""

from attrs import define, field

from plugins.dispatch.breaker import BreakerConfig, Breakers
from plugins.dispatch.circuit import State, Verdict
from plugins.dispatch.roster import Roster
from plugins.dispatch.worker import Role, Worker
from tests.dispatch.policies.support import Clock, roster_of

PLAIN = BreakerConfig(failures=3, open_seconds=8.0, max_open_seconds=100.0, requests=10)
"""Breakers whose times are whole numbers, since nothing is drawn by lot."""


@define(eq=False)
class Fleet:
    """A pool's breakers."""

    count: int
    config: BreakerConfig = PLAIN
    clock: Clock = field(factory=Clock)
    model: str = "m"
    slow_start: float = 0.0
    roster: Roster = field(init=False)
    breakers: Breakers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.roster = roster_of(self.count, slow_start=self.slow_start, clock=self.clock)
        self.breakers = Breakers(self.model, Role.CONTEXT, self.config, self.roster, self.clock, lambda: 0.0)

    def worker(self, index: int) -> Worker:
        """A worker."""
        return self.roster.at(index)

    def end(self, index: int, *verdicts: Verdict) -> None:
        """Choose a worker and let the request end so, one after the other."""
        for verdict in verdicts:
            probe = self.breakers.begin(self.worker(index))
            self.breakers.end(self.worker(index), verdict, self.clock(), probe=probe)

    def fail(self, index: int, times: int = 1) -> None:
        """Let requests fail."""
        self.end(index, *[Verdict.FAILURE] * times)

    def serve(self, *indexes: int) -> None:
        """Let a request succeed on each."""
        for index in indexes:
            self.end(index, Verdict.SUCCESS)

    def eject(self, index: int) -> None:
        """Fail until the worker is out."""
        self.fail(index, self.config.failures)
        assert self.state(index) is State.OPEN

    def after(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.now += seconds
        self.breakers.advance()

    def state(self, index: int) -> State:
        """A worker's state."""
        return self.worker(index).circuit.state

    @property
    def members(self) -> list[int]:
        """Who may be chosen."""
        return [worker.index for worker in self.roster.members]
