"""A pool: the workers of one model and role, their connections, the load on them, and who uses them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, cast

from attrs import define, evolve, field, frozen

from kernel import Secret
from plugins.dispatch.breaker import BreakerConfig, Breakers
from plugins.dispatch.candidates import Turn, select
from plugins.dispatch.circuit import SUCCESS, Verdict
from plugins.dispatch.client import Client, Fault
from plugins.dispatch.config import HealthConfig
from plugins.dispatch.discovery.contract import Discovery
from plugins.dispatch.health import Watch
from plugins.dispatch.membership import Membership, Tenant
from plugins.dispatch.policy import (
    Facts,
    HasSources,
    HearsEndings,
    HearsLeaving,
    HearsTurns,
    Policy,
    Prepares,
    Site,
    Weighs,
)
from plugins.dispatch.roster import Roster
from plugins.dispatch.shares import Shares
from plugins.dispatch.state.roster import make_roster, pool_name
from plugins.dispatch.transports.choice import ChosenClient, Transport
from plugins.dispatch.transports.tls import TlsConfig
from plugins.dispatch.worker import Reservation, Role, Worker
from plugins.metrics import RESERVATIONS, WORKERS_UP, child
from plugins.tallies import Cell, cell_of


@frozen
class PoolSettings:
    """What makes two pools the same: in a reload, a pool with equal settings goes on, whoever its workers are."""

    model: str
    role: Role
    policy: Policy
    api_key: Secret | None
    health: HealthConfig
    keep_alive_seconds: float
    transport: Transport | None = None
    breaker: BreakerConfig = field(factory=BreakerConfig)
    tls: TlsConfig | None = None

    def is_kin(self, other: "PoolSettings") -> bool:
        """Whether the workers of two pools have their health in common."""
        return (self.model, self.role, self.api_key) == (other.model, other.role, other.api_key)


@define(eq=False)
class Pool:
    """Runs while it has users, from `acquire` to `release`; made inside a running event loop.

    `health` is what was known of workers before, by URL. `breakers` eject those that fail requests.
    `prepares` is the policy, if it has work to do before a leg's first choice.
    """

    settings: PoolSettings
    health: Mapping[str, bool | None] = field(factory=dict)
    headers: Mapping[str, str] = field(init=False)
    client: Client = field(init=False)
    breakers: Breakers = field(init=False)
    _roster: Roster = field(init=False)
    _policy: Policy = field(init=False)
    _weighs: Weighs | None = field(init=False)
    prepares: Prepares | None = field(init=False)
    _hears: HearsEndings | None = field(init=False)
    _listens: HearsTurns | None = field(init=False)
    _watch: Watch = field(init=False)
    _membership: Membership = field(init=False)
    _held: Cell = field(init=False)
    _turn: Turn = field(factory=Turn, init=False)

    def __attrs_post_init__(self) -> None:
        settings, key = self.settings, self.settings.api_key
        self.headers = {} if key is None else {"authorization": f"Bearer {key.reveal()}"}
        self.client = ChosenClient(settings.transport, settings.keep_alive_seconds, settings.tls)
        policy = self._policy = evolve(cast("Any", settings.policy))  # a copy with run-time state of its own
        # asked once: to ask an object whether it has a protocol's methods takes longer than most choices
        self._weighs = policy if isinstance(policy, Weighs) else None
        self.prepares = policy if isinstance(policy, Prepares) else None
        self._hears = policy if isinstance(policy, HearsEndings) else None
        self._listens = policy if isinstance(policy, HearsTurns) else None
        self._held = cell_of(child(RESERVATIONS, settings.model, settings.role))
        name, shares = (settings.model, settings.role), Shares(settings.health.slow_start_seconds)
        self._roster = make_roster(pool_name(*name), policy, shares, self._turned, self._forget)
        self.breakers = Breakers(*name, settings.breaker, self._roster)
        self._watch = Watch(*name, settings.health, self.client, self.headers, self._roster.refresh)
        self._membership = Membership(*name, self._roster, self._watch, self.health)

    @property
    def workers(self) -> Sequence[Worker]:
        """All workers, up or not."""
        return tuple(self._roster.known())

    @property
    def ready(self) -> Sequence[Worker]:
        """The workers that take requests."""
        if self.breakers.out:
            self.breakers.advance()
        return self._roster.members

    def acquire(self, discovery: Discovery | None = None) -> Tenant:
        """Count a user in, one with a say in who the workers are if it has a discovery."""
        if self._membership.is_empty and isinstance(self._policy, HasSources):
            settings = self.settings
            self._policy.start(Site(settings.model, settings.role, self._roster, self.client, self.headers))
        return self._membership.enter(discovery)

    def settle(self, tenant: Tenant) -> None:
        """Let go of workers that only older users have."""
        self._membership.settle(tenant)

    async def release(self, tenant: Tenant) -> None:
        """Count a user out; after the last one, probes end and connections close."""
        await self._membership.leave(tenant)
        if self._membership.is_empty:
            await self._watch.stop()
            self._roster.close()
            self.breakers.close()
            if isinstance(self._policy, HasSources):
                await self._policy.stop()
            await self.client.close()

    async def known(self) -> None:
        """Return when it was heard who the workers are, and every one of them was probed once."""
        await self._membership.known()

    def reserve(self, facts: Facts, but: Collection[Worker] = (), avoid: Iterable[str] = ()) -> Reservation | None:
        """Choose a worker that is ready and none of `but`, and count the load; None if there is none.

        A worker at a URL of `avoid` is chosen only if there is no other. With `but`, it is a request that has failed
        once, which had better not be the one that tries an ejected worker.
        """
        breakers, roster = self.breakers, self._roster
        if breakers.out:
            breakers.advance()
        candidates = roster.everyone
        if candidates is None or but or avoid or roster.shares.due:
            candidates = select(roster, but, (*avoid, *breakers.trying) if but else avoid)
        if candidates is None:
            return None
        worker = self._policy.choose(candidates, facts)
        if not candidates.has(worker):
            raise TypeError(f"the policy {type(self._policy).__name__} chose what is no candidate")
        work = 1 if self._weighs is None else max(1, self._weighs.weigh(worker, facts))
        return self._charge(worker, work, facts)

    def spare(self, but: Collection[Worker] = ()) -> Reservation | None:
        """A worker with the least work, among equals each in turn, for a request that the policy does not hear of."""
        self.breakers.advance()
        candidates = select(self._roster, but)
        return None if candidates is None else self._charge(candidates.least(self._turn), 1, None)

    def offers(self, but: Collection[Worker]) -> bool:
        """Whether there is a worker that is ready and none of `but`."""
        self.breakers.advance()
        return select(self._roster, but) is not None

    def report(self, worker: Worker, fault: Fault) -> None:
        """Take a worker that failed in traffic out until a probe succeeds."""
        self._watch.report(worker, fault)

    def give_back(self, held: Reservation, verdict: Verdict) -> None:
        """Count a request out whose reservation ends so, and tell those who want to know."""
        worker, now = held.worker, monotonic()
        if verdict is SUCCESS:
            worker.heard = now
        self._roster.charge(worker, -held.work, -1)
        self._held[0] -= 1
        self.breakers.end(worker, verdict, now, probe=held.probe)
        if self._hears is not None and held.facts is not None:
            self._hears.finished(worker, held.facts, success=verdict is SUCCESS)

    def _charge(self, worker: Worker, work: int, facts: Facts | None) -> Reservation:
        self._roster.charge(worker, work)
        self._held[0] += 1
        probe = bool(self.breakers.out) and self.breakers.begin(worker)
        return Reservation(worker, work, facts, probe, self)

    def _forget(self, worker: Worker) -> None:
        self.breakers.forget(worker)
        if isinstance(self._policy, HearsLeaving):
            self._policy.left(worker)

    def _turned(self, worker: Worker) -> None:
        step = 1 if self._roster.takes(worker) else -1
        child(WORKERS_UP, self.settings.model, self.settings.role).inc(step)
        self._membership.turned()
        if self._listens is not None:
            self._listens.turned(worker)
