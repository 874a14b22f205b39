"""A pool: the workers of one model and role, their connections, the load on them, and who uses them."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from attrs import define, evolve, field, frozen

from kernel import Secret
from plugins.dispatch.client import Client, Fault
from plugins.dispatch.config import HealthConfig
from plugins.dispatch.health import Watch
from plugins.dispatch.policy import Facts, Policy
from plugins.dispatch.transports.aiohttp import AiohttpClient
from plugins.dispatch.worker import Reservation, Role, Worker
from plugins.metrics import RESERVATIONS, child


@frozen
class PoolSettings:
    """What makes two pools the same: in a reload, a pool with equal settings goes on as it is."""

    model: str
    role: Role
    workers: tuple[str, ...]
    policy: Policy
    api_key: Secret | None
    health: HealthConfig
    keep_alive_seconds: float


@define(eq=False)
class Pool:
    """Runs while it has users, which `acquire` and `release` count; made inside a running event loop."""

    settings: PoolSettings
    workers: tuple[Worker, ...] = field(init=False)
    headers: Mapping[str, str] = field(init=False)
    client: Client = field(init=False)
    _policy: Policy = field(init=False)
    _watch: Watch = field(init=False)
    _users: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.workers = tuple(Worker(url, index) for index, url in enumerate(settings.workers))
        key = settings.api_key
        self.headers = {} if key is None else {"authorization": f"Bearer {key.reveal()}"}
        self.client = AiohttpClient(settings.keep_alive_seconds)
        self._policy = evolve(cast("Any", settings.policy))  # a copy with run-time state of its own
        self._watch = Watch(settings.model, settings.role, self.workers, settings.health, self.client, self.headers)

    @property
    def ready(self) -> tuple[Worker, ...]:
        """The workers that take requests."""
        return self._watch.ready

    def acquire(self) -> "Pool":
        """Count a user in; the first one starts the probes."""
        self._users += 1
        if self._users == 1:
            self._watch.start()
        return self

    async def release(self) -> None:
        """Count a user out; after the last one, probes end and connections close."""
        self._users -= 1
        if self._users == 0:
            await self._watch.stop()
            await self.client.close()

    async def known(self) -> None:
        """Return when every worker was probed once."""
        await self._watch.known()

    def reserve(self, facts: Facts, but: Collection[Worker] = ()) -> Reservation | None:
        """Choose a worker that is ready and none of `but`, and count the load; None if there is none."""
        candidates = self.ready
        if but:
            candidates = tuple(worker for worker in candidates if worker not in but)
        if not candidates:
            return None
        worker = self._policy.choose(candidates, facts)
        worker.load += 1
        child(RESERVATIONS, self.settings.model, self.settings.role).inc()
        return Reservation(worker, self._give_back)

    def report(self, worker: Worker, fault: Fault) -> None:
        """Take a worker that failed in traffic out until a probe succeeds."""
        self._watch.report(worker, fault)

    def _give_back(self, worker: Worker) -> None:
        worker.load -= 1
        child(RESERVATIONS, self.settings.model, self.settings.role).dec()
