"""Who the workers of a pool are: what its users want, and how workers join, change and leave."""

from collections.abc import Collection, Mapping
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.dispatch.discovery.contract import Discovery
from plugins.dispatch.follower import Follower
from plugins.dispatch.health import Watch
from plugins.dispatch.roster import Roster
from plugins.dispatch.worker import Role, Worker
from plugins.dispatch.worker_config import WorkerConfig

CONFIGURED: Final = "configuration"
PARTING: Final = "parting"
"""Why a worker drains: it is told to, or only a user wants it whose successor does not."""

_SHOWN: Final = 20

log = get_logger()


@define(eq=False)
class Tenant:
    """One user's word on who the workers are. It brings workers in at once, and lets others go when it is `settled`."""

    follower: Follower | None
    settled: bool = field(default=False, init=False)

    @property
    def workers(self) -> tuple[WorkerConfig, ...] | None:
        """Whom it wants, None if that is not known."""
        return None if self.follower is None else self.follower.workers


@define(eq=False)
class Membership:
    """The word of the newest user counts. Whom an older one still has besides drains, and leaves with that user.

    So a user that fails to begin, and leaves, changes nothing. Nor does a change leave a pool without anybody who takes
    requests, while somebody new may soon: until then those go on who do. `health` is what another pool knew of
    workers' health when this one began.
    """

    model: str
    role: Role
    roster: Roster
    watch: Watch
    health: Mapping[str, bool | None] = field(factory=dict)
    _tenants: list[Tenant] = field(factory=list, init=False)
    _awaited: bool = field(default=False, init=False)

    def enter(self, discovery: Discovery | None) -> Tenant:
        """Count a user in, with its discovery if it is one who has a say."""
        alike = (other.follower for other in self._tenants if other.follower is not None)
        follower = next((known for known in alike if known.discovery == discovery), None)
        if follower is None and discovery is not None:
            follower = Follower(discovery, self.model, self.role, self._update)
        tenant = Tenant(follower)
        self._tenants.append(tenant)
        self._update()
        return tenant

    def settle(self, tenant: Tenant) -> None:
        """Let a user's word count alone from now on."""
        tenant.settled = True
        self._update()

    def turned(self) -> None:
        """Take note that a worker begins or ceases to take requests."""
        if self._awaited:
            self._update()

    @property
    def is_empty(self) -> bool:
        """Whether there are no users."""
        return not self._tenants

    async def leave(self, tenant: Tenant) -> None:
        """Count a user out."""
        self._tenants.remove(tenant)
        follower = tenant.follower
        if follower is not None and all(other.follower is not follower for other in self._tenants):
            await follower.stop()
        self._update()

    async def known(self) -> None:
        """Return when every user has said something, and every worker was probed once."""
        for tenant in tuple(self._tenants):
            if tenant.follower is not None:
                await tenant.follower.told.wait()
        await self.watch.known()

    def _update(self) -> None:
        named = [(tenant.settled, tenant.workers) for tenant in self._tenants if tenant.workers is not None]
        if not named:
            return  # nobody knows any better
        settled = [workers for is_settled, workers in named if is_settled]
        coming = [workers for is_settled, workers in named if not is_settled]
        wanted = {worker.url: worker for workers in [*coming, *settled[-1:]] for worker in workers}
        self._apply(wanted, {worker.url for workers in settled[:-1] for worker in workers})

    def _apply(self, wanted: Mapping[str, WorkerConfig], kept: Collection[str]) -> None:
        self._awaited = False
        missing, leaving = dict(wanted), list[Worker]()
        for worker in self.roster.known():
            config = missing.pop(worker.url, None)
            if config is not None:
                self._adjust(worker, config)
            else:
                leaving.append(worker)
        for config in missing.values():
            self._join(config)
        self.health = {}
        serving = [worker for worker in leaving if self.roster.takes(worker)]
        awaited = bool(serving) and self._waits_for(wanted)
        gone = [worker for worker in leaving if not (awaited and worker in serving)]
        left = [worker.url for worker in gone if self._part(worker, for_good=worker.url not in kept)]
        self._awaited = awaited
        if missing or left:
            counts = {"joined": len(missing), "left": len(left), "workers": len(wanted)}
            shown = {"urls_joined": [*missing][:_SHOWN], "urls_left": left[:_SHOWN]}
            log.info("workers.changed", model=self.model, role=self.role, **counts, **shown)

    def _waits_for(self, wanted: Mapping[str, WorkerConfig]) -> bool:
        """Whether none of them takes requests yet, and one may once it was probed."""
        workers = [self.roster.find(url) for url in wanted]
        if any(worker is not None and self.roster.takes(worker) for worker in workers):
            return False
        return any(worker is not None and not worker.draining and worker.up is not True for worker in workers)

    def _join(self, config: WorkerConfig) -> None:
        worker = Worker(config.url, 0, up=self.health.get(config.url), weight=config.weight)
        worker.bootstrap_port = config.bootstrap_port
        self.roster.drain(worker, draining=config.draining, by=CONFIGURED)
        self.roster.add(worker)
        self.watch.join(worker)

    def _adjust(self, worker: Worker, config: WorkerConfig) -> None:
        """Let a worker be as it is configured now."""
        worker.bootstrap_port = config.bootstrap_port
        self.roster.reweigh(worker, config.weight)
        self.roster.drain(worker, draining=config.draining, by=CONFIGURED)
        self.roster.drain(worker, draining=False, by=PARTING, eased=False)
        self.watch.join(worker)

    def _part(self, worker: Worker, *, for_good: bool) -> bool:
        """Give a worker no more requests, and say whether it had any until now."""
        before = PARTING not in worker.drained_by
        self.watch.leave(worker)
        self.roster.drain(worker, by=PARTING)
        if for_good:
            self.roster.remove(worker)
        return before
