"""One worker: its address, whether it takes requests, and the load that is reserved on it."""

from enum import StrEnum
from typing import Any, Protocol

from attrs import define, field

from plugins.dispatch.circuit import SUCCESS, Circuit, Verdict


class Role(StrEnum):
    """What a worker does: the context phase (prefill), or the generation phase (decode)."""

    CONTEXT = "context"
    GENERATION = "generation"


@define(eq=False)
class Worker:
    """A server of one role. `index` is its place in the configuration of its pool.

    `up` is None until the first probe. `load` counts reservations, `misses` failed probes in a row, and
    `faults` what went wrong in traffic, so that a probe that was sent before a fault does not outweigh it.
    One that is `drained_by` anybody takes no new requests. `heard` is when it last sent something of an answer, in
    seconds of the monotonic clock. `weight` is its part of the work beside others, `share` the same
    but less while it is new; `work` is what its reservations weigh, by the measure of the pool's policy. `circuit`
    says whether it is ejected for its errors.
    """

    url: str
    index: int
    up: bool | None = None
    load: int = 0
    misses: int = 0
    faults: int = 0
    heard: float = 0.0
    weight: float = 1.0
    bootstrap_port: int | None = None
    share: float = field(default=1.0, init=False)
    work: int = field(default=0, init=False)
    circuit: Circuit = field(factory=Circuit, init=False)
    drained_by: set[str] = field(factory=set, init=False)

    @property
    def draining(self) -> bool:
        """Whether it takes no new requests although it may be up."""
        return bool(self.drained_by)


class Keeper(Protocol):
    """Who counts the load of workers."""

    def give_back(self, held: "Reservation", verdict: Verdict, /) -> None:
        """Count a request out; called once for each."""
        ...


@define(eq=False)
class Reservation:
    """Load held on a worker from its choice until `release`, which may be called any number of times.

    `work` is what it weighs, and `facts` are what the policy knew. `probe`: the worker was ejected, and this request
    tries it. `verdict` is what a release without success will say of the worker.
    """

    worker: Worker
    work: int
    facts: Any
    probe: bool
    _keeper: Keeper | None = field(alias="keeper")
    verdict: Verdict = field(default=Verdict.NEUTRAL, init=False)

    def release(self, *, success: bool = False) -> None:
        """Give the load back, and say whether the worker answered well."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.give_back(self, SUCCESS if success else self.verdict)
