"""The breakers of a pool: which workers are ejected for their errors, for how long, and how they come back."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from random import random
from time import monotonic
from typing import Any, Final

from attrs import Attribute, define, field, frozen, validators
from structlog.stdlib import get_logger

from plugins.dispatch.circuit import CLOSED, SUCCESS, State, Verdict
from plugins.dispatch.roster import Roster
from plugins.dispatch.worker import Role, Worker
from plugins.metrics import BREAKERS_OPEN, EJECTIONS, child

log = get_logger()

_POSITIVE: Final[list[Any]] = [validators.gt(0), validators.lt(float("inf"))]
_SHARE: Final[list[Any]] = [validators.gt(0), validators.le(1)]


@frozen
class BreakerConfig:
    """When a worker that answers probes and fails requests gets none for a while.

    After `failures` in a row (0 switches breakers off), or when of at least `requests` within `window_seconds` a
    `failure_share` failed and twice the share of its pool's other workers, it is ejected for `open_seconds`, twice
    as long each time, up to `max_open_seconds`. Then one request tries it. No more than `ejected_share` of a pool,
    by weight, is ever out because of breakers; and nobody is ejected for failures in a row while most of the others
    fail as well.
    """

    failures: int = field(default=5, validator=validators.ge(0))
    failure_share: float = field(default=0.5, validator=_SHARE)
    requests: int = field(default=20, validator=validators.ge(1))
    window_seconds: float = field(default=30.0, validator=_POSITIVE)
    open_seconds: float = field(default=5.0, validator=_POSITIVE)
    max_open_seconds: float = field(default=120.0, validator=_POSITIVE)
    ejected_share: float = field(default=0.5, validator=_SHARE)

    @max_open_seconds.validator
    def _check_longest(self, _attribute: "Attribute[Any]", value: float) -> None:
        if value < self.open_seconds:
            raise ValueError(f"max_open_seconds must not be less than open_seconds, got {value!r}")


@define(eq=False)
class Breakers:
    """Tells the roster who may be chosen, as that changes; a choice itself looks at nobody's breaker.

    `out` are the workers whose circuits are not closed.
    """

    model: str
    role: Role
    config: BreakerConfig
    roster: Roster
    clock: Callable[[], float] = monotonic
    draw: Callable[[], float] = random
    out: set[Worker] = field(factory=set, init=False)
    _due: list[tuple[float, int, Worker]] = field(factory=list, init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)

    @property
    def trying(self) -> list[str]:
        """The workers that wait for the one request that tries them."""
        return [worker.url for worker in self.out if worker.circuit.state is State.HALF_OPEN] if self.out else []

    def advance(self) -> None:
        """Let workers whose time is over be tried; if nobody else is there, hold nobody back."""
        if not self.out:
            return
        now = self.clock()
        while self._due and self._due[0][0] <= now:
            until, _, worker = heappop(self._due)
            if worker.circuit.state is State.OPEN and worker.circuit.until == until:
                self._turn(worker, State.HALF_OPEN)
        if not self.roster.mask:
            for worker in tuple(self.out):
                if worker.up and not worker.draining:
                    self._close(worker, "nobody else is up")

    def begin(self, worker: Worker) -> bool:
        """Note that a worker was chosen; True if this is the one request that tries it."""
        if worker.circuit.state is not State.HALF_OPEN:
            return False
        self._turn(worker, State.PROBED)
        return True

    def vouch(self, worker: Worker) -> None:
        """Take note that the request which tries a worker is being answered, however long that takes."""
        if worker.circuit.state is State.PROBED:
            self._close(worker, "it answers")

    def press(self, worker: Worker, seconds: float) -> None:
        """Give a worker that says it has too much to do less, for `seconds` and some time after."""
        self.roster.ease(worker, seconds)

    def end(self, worker: Worker, verdict: Verdict, now: float, *, probe: bool) -> None:
        """Take note of how an attempt ended; called once for each choice."""
        circuit = worker.circuit
        if circuit.state is CLOSED:
            if verdict is SUCCESS:
                circuit.streak = 0
                circuit.window.note(now, self.config.window_seconds, failed=False)
            # of a worker that is down already, each request that was on its way fails: that is one failure
            elif verdict is Verdict.FAILURE and self.config.failures and worker.up is not False:
                self._count_failure(worker, now, at_once=probe)
        elif probe and circuit.state is State.PROBED:
            self._end_probe(worker, verdict)

    def forget(self, worker: Worker) -> None:
        """Be done with a worker for good."""
        worker.circuit.state = State.CLOSED
        if worker in self.out:
            self.out.discard(worker)
            child(BREAKERS_OPEN, self.model, self.role).dec()

    def close(self) -> None:
        """Be done with all of them."""
        for worker in tuple(self.out):
            self.forget(worker)

    def _end_probe(self, worker: Worker, verdict: Verdict) -> None:
        if verdict is Verdict.SUCCESS:
            self._close(worker, "it answers")
        elif verdict is Verdict.FAILURE:
            self._open(worker, "probe")
        else:
            self._turn(worker, State.HALF_OPEN)  # nothing was learned, so another request may try

    def _count_failure(self, worker: Worker, now: float, *, at_once: bool) -> None:
        if not self.roster.has(worker):
            return
        circuit = worker.circuit
        circuit.window.note(now, self.config.window_seconds, failed=True)
        circuit.streak += 1
        reason = "probe" if at_once else self._why(worker, now)
        if reason is not None and self._can_spare(worker):
            self._open(worker, reason)

    def _why(self, worker: Worker, now: float) -> str | None:
        """Why a worker should be ejected, if it should: it stands out from the others."""
        config, circuit = self.config, worker.circuit
        if circuit.streak >= config.failures:
            # workers and not requests are compared: one that fails at once ends more of them than all the others
            streaks = [one.circuit.streak for one in self.roster.members if one is not worker]
            return "consecutive" if 2 * sum(streak > 0 for streak in streaks) <= len(streaks) else None
        failed, ended = circuit.window.totals(now, config.window_seconds)
        if ended < config.requests or failed < ended * config.failure_share:
            return None
        all_failed = all_ended = 0
        for one in self.roster.members:
            one_failed, one_ended = one.circuit.window.totals(now, config.window_seconds)
            all_failed, all_ended = all_failed + one_failed, all_ended + one_ended
        return "share" if failed * (all_ended - ended) >= 2 * (all_failed - failed) * ended else None

    def _can_spare(self, worker: Worker) -> bool:
        """Whether enough of the pool is left without a worker; those that are down are out as well."""
        known = [one for one in self.roster.known() if not one.draining]
        out = sum(one.weight for one in known if one is worker or not self.roster.takes(one))
        return out <= self.config.ejected_share * sum(one.weight for one in known)

    def _open(self, worker: Worker, reason: str) -> None:
        now, circuit, config = self.clock(), worker.circuit, self.config
        if circuit.state is State.CLOSED:  # good times make up for bad ones
            circuit.repeats = max(0, circuit.repeats - int((now - circuit.closed) / config.max_open_seconds))
        seconds = min(config.max_open_seconds, config.open_seconds * 2.0 ** min(circuit.repeats, 30))
        seconds *= 1 - self.draw() / 4  # not all workers at once
        circuit.repeats += 1
        circuit.until = now + seconds
        heappush(self._due, (circuit.until, next(self._numbers), worker))
        if worker not in self.out:
            self.out.add(worker)
            child(BREAKERS_OPEN, self.model, self.role).inc()
        failures, circuit.streak = circuit.streak, 0
        self._turn(worker, State.OPEN)
        child(EJECTIONS, self.model, self.role, reason).inc()
        log.warning(
            "worker.ejected",
            model=self.model, role=self.role, worker=worker.url, reason=reason, failures=failures,
            seconds=round(seconds, 3),
        )  # fmt: skip

    def _close(self, worker: Worker, reason: str) -> None:
        circuit = worker.circuit
        circuit.closed, circuit.streak = self.clock(), 0
        circuit.window.clear()
        self.forget(worker)
        self._turn(worker, State.CLOSED)
        log.info("worker.admitted", model=self.model, role=self.role, worker=worker.url, reason=reason)

    def _turn(self, worker: Worker, state: State) -> None:
        worker.circuit.state = state
        self.roster.refresh(worker, eased=state is not State.HALF_OPEN)  # one request is little enough
