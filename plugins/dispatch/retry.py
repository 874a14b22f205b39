"""Whether a request whose attempt failed is sent once more, and what its client is told if it is not."""

import os
from random import uniform
from time import monotonic
from typing import Any, Final

from attrs import Attribute, define, evolve, field, frozen, validators
from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.budget import RetryBudget
from plugins.dispatch.circuit import Verdict
from plugins.dispatch.client import ConnectFault, Fault, StaleFault, TransportFault
from plugins.dispatch.handoffs import StaleHandoff
from plugins.dispatch.rejections import NoWorker
from plugins.dispatch.worker import Role
from plugins.metrics import BUDGET_EXHAUSTED, RETRIES, child
from plugins.slots import WorkerRejection

PRESSURE_SECONDS: Final = 30.0
"""For how long at most a worker's `Retry-After` is believed."""

CONNECT: Final = "connect"

_NO_RETRY: Final = "TRTLLM_DISAGG_NO_RETRY"
_AGAIN: Final = {408: "408", 429: "429"}
_PRESSURE: Final = (429, 503)
_LACKING: Final = 501
"""How llama.cpp declines what its model was not loaded for, such as embeddings."""

log = get_logger()

_POSITIVE: Final[list[Any]] = [validators.gt(0), validators.lt(float("inf"))]
_NOT_NEGATIVE: Final[list[Any]] = [validators.ge(0), validators.lt(float("inf"))]


@frozen
class RetryConfig:
    """How often a request of which the client has seen nothing is sent again.

    `attempts` beyond the first one, 0 switches retries off. Those that cost a worker anything are paid for out of
    a budget of the model: each request brings `budget_share` of a retry, each second `budget_floor`, and no more
    than `budget_cap` are saved. Before the same worker is tried again, there is a pause of `pause_seconds`, twice
    as long each time, up to `max_pause_seconds`. `resend_on_stale`: send what a kept connection did not carry, since
    the worker had closed it, over a new one.
    """

    attempts: int = field(default=2, validator=[validators.ge(0), validators.le(10)])
    budget_share: float = field(default=0.2, validator=[validators.ge(0), validators.le(1)])
    budget_floor: float = field(default=1.0, validator=_NOT_NEGATIVE)
    budget_cap: float = field(default=100.0, validator=[validators.ge(1), validators.lt(float("inf"))])
    pause_seconds: float = field(default=0.1, validator=_POSITIVE)
    max_pause_seconds: float = field(default=2.0, validator=_POSITIVE)
    resend_on_stale: bool = True

    @max_pause_seconds.validator
    def _check_longest(self, _attribute: "Attribute[Any]", value: float) -> None:
        if value < self.pause_seconds:
            raise ValueError(f"max_pause_seconds must not be less than pause_seconds, got {value!r}")

    def effective(self) -> "RetryConfig":
        """What holds in this process: TensorRT-LLM's variable for tests switches everything off."""
        if os.environ.get(_NO_RETRY) != "1":
            return self
        log.warning("retry.disabled", variable=_NO_RETRY)
        return evolve(self, attempts=0, resend_on_stale=False)

    def budget(self) -> RetryBudget:
        """The budget of one model."""
        return RetryBudget(self.budget_share, self.budget_floor, self.budget_cap)


def reason_of(error: Rejection, *, answering: bool) -> str | None:
    """Why it may help to send a request again; None if it would not, or could do harm.

    A timeout is none: the worker may still be at it, and a second one would be kept as busy. Nor is an answer that
    cannot be used: the work was done, and where all workers are alike the next one answers alike. With
    `answering`, a part of the answer had come: the work was done as well.
    """
    if isinstance(error, ConnectFault):
        return CONNECT
    if isinstance(error, StaleHandoff):
        return "handoff"
    if isinstance(error, StaleFault):
        return "stale"
    if isinstance(error, TransportFault):
        return None if answering else "transport"
    if isinstance(error, Fault) or not isinstance(error, WorkerRejection):
        return None
    return "5xx" if error.status >= 500 else _AGAIN.get(error.status)


def verdict_of(error: Rejection) -> Verdict:
    """What a failed attempt says of its worker. One that declines a request shows neither health nor a fault."""
    if isinstance(error, StaleFault | StaleHandoff) or not isinstance(error, WorkerRejection):
        return Verdict.NEUTRAL
    if not isinstance(error, Fault) and error.status in _PRESSURE:
        return Verdict.PRESSURE
    return Verdict.FAILURE if error.status >= 500 and error.status != _LACKING else Verdict.NEUTRAL


def relief_of(error: Rejection) -> float:
    """For how many seconds a worker wants less to do."""
    text = dict(error.headers).get("retry-after", "")
    return min(float(text), PRESSURE_SECONDS) if text.isascii() and text.isdigit() else 0.0


@define(eq=False)
class Retries:
    """Those of one request; the one place that decides on them. `needed` seconds must be left until `deadline`."""

    model: str
    config: RetryConfig
    budget: RetryBudget
    deadline: float | None = None
    needed: float = 0.0
    taken: int = 0
    _answer: Rejection | None = field(default=None, init=False)
    _failure: Rejection | None = field(default=None, init=False)

    def note(self, error: Rejection) -> None:
        """Remember how an attempt failed, for the case that nothing better comes."""
        if isinstance(error, NoWorker | ConnectFault):
            return
        self._failure = error
        if not isinstance(error, Fault):
            self._answer = error

    def allow(self, reason: str, tries: int) -> bool:
        """Whether a leg that was tried again `tries` times may be so once more.

        A connection that was not made cost nobody anything, so that it counts for its leg alone.
        """
        spent = tries if reason == CONNECT else max(tries, self.taken)
        return spent < self.config.attempts and self._in_time(0.0)

    def pay(self, role: Role, reason: str) -> bool:
        """Whether the budget has it."""
        if reason == CONNECT:
            return True
        if self.budget.take():
            self.taken += 1
            return True
        child(BUDGET_EXHAUSTED, self.model, role).inc()
        return False

    def count(self, role: Role, reason: str) -> None:
        """Count a retry."""
        child(RETRIES, self.model, role, reason).inc()

    def pause(self, tries: int) -> float | None:
        """How long to wait before the same worker is tried again; None if there is not the time for it."""
        longest = min(self.config.max_pause_seconds, self.config.pause_seconds * 2.0**tries)
        seconds = uniform(longest / 2, longest)  # noqa: S311  # requests are spread, nothing is guarded
        return seconds if self._in_time(seconds) else None

    def outcome(self, error: Rejection, unserved: Rejection) -> Rejection:
        """What the client is told: of several failures, the last thing that a worker said itself."""
        if isinstance(error, NoWorker | ConnectFault):
            return self._answer or self._failure or unserved
        return self._answer or error if isinstance(error, TransportFault) else error

    def _in_time(self, seconds: float) -> bool:
        return self.deadline is None or self.deadline - monotonic() > self.needed + seconds
