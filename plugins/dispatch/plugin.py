"""The plugin `dispatch`: which service a request is for, and the pools behind the services."""

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from attrs import define, field, frozen

from kernel import CallNext, DataReply, Exchange, PluginSpec, Rejection, Reply
from plugins.dispatch.breaker import BreakerConfig
from plugins.dispatch.client import Limits
from plugins.dispatch.config import HealthConfig, ModelConfig, check_distinct, check_seconds
from plugins.dispatch.job import begin
from plugins.dispatch.membership import Tenant
from plugins.dispatch.models import Card, list_models, show_model
from plugins.dispatch.pool import Pool, PoolSettings
from plugins.dispatch.queries import answer_query
from plugins.dispatch.rejections import unknown_model
from plugins.dispatch.retry import RetryConfig
from plugins.dispatch.runner import run
from plugins.dispatch.service import Patience, Service
from plugins.dispatch.state.roster import siblings
from plugins.endpoints import GENERATIVE, MODELS, NAMELESS, ONE_MODEL, RELAYED, model_asked_for
from plugins.slots import MODEL, PAYLOAD, SERVED, STREAM, TRANSLATED, InvalidRequest

START_SECONDS: Final = 1.0
"""How long a start waits for the first probes; workers that take longer are missing at first."""


@define(eq=False)
class _State:
    """What runs: services by every name of their model, and the use of each pool once."""

    services: dict[str, Service] = field(factory=dict)
    uses: list[tuple[Pool, Tenant]] = field(factory=list)
    inherited: list[tuple[Pool, Tenant]] = field(factory=list)
    before: dict[str, Service] = field(factory=dict)
    created: int = 0
    retry: RetryConfig = field(factory=RetryConfig)


@frozen
class Dispatch:
    """Send each request to the workers of its model, and list the models.

    `keep_alive_seconds` is how long an idle connection is kept: less than the workers keep it. A stream may
    pause for `read_timeout_seconds`; an answer that is not streamed takes at most `total_timeout_seconds`.
    """

    pools: tuple[ModelConfig, ...] = field(default=(), validator=check_distinct)
    health: HealthConfig = field(factory=HealthConfig)
    retry: RetryConfig = field(factory=RetryConfig)
    breaker: BreakerConfig = field(factory=BreakerConfig)
    connect_timeout_seconds: float = field(default=5.0, validator=check_seconds)
    read_timeout_seconds: float = field(default=300.0, validator=check_seconds)
    total_timeout_seconds: float = field(default=600.0, validator=check_seconds)
    keep_alive_seconds: float = field(default=3.0, validator=check_seconds)
    _state: _State = field(init=False, factory=_State, eq=False, repr=False)

    def succeed(self, predecessor: "Dispatch") -> None:
        """Take over the pools whose settings did not change, with the health, load and connections of workers."""
        self._state.inherited = [(pool, pool.acquire()) for pool, _ in predecessor._state.uses]  # noqa: SLF001  # one class
        self._state.before = predecessor._state.services  # noqa: SLF001

    async def start(self) -> None:
        """Start the other pools, and wait a moment for the first probes, and for what other processes know."""
        state = self._state
        state.created = int(time.time())
        state.retry = self.retry.effective()
        for model in self.pools:
            service = self._build_service(model)
            for name in (model.model, *model.aliases):
                state.services[name] = service
        inherited, state.inherited, state.before = state.inherited, [], {}
        for pool, tenant in inherited:
            await pool.release(tenant)
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                for pool, _ in state.uses:
                    await pool.known()
                if (others := siblings()) is not None:
                    await others.caught_up.wait()
        for pool, tenant in state.uses:
            pool.settle(tenant)

    async def stop(self) -> None:
        """Let go of every pool; those that a successor took over go on."""
        for service in self._state.services.values():
            await service.errands.finish()
        uses = [*self._state.uses, *self._state.inherited]
        self._state.uses, self._state.inherited = [], []
        for pool, tenant in uses:
            await pool.release(tenant)

    def unready(self) -> Sequence[str]:
        """Why no request can be served. One model that can be served is enough to be ready."""
        services = {id(service): service for service in self._state.services.values()}.values()
        reasons = [
            [f"{service.model}: no {role} worker is ready" for role, pool in service.pools.items() if not pool.ready]
            for service in services
        ]
        if not reasons:
            return ["no pools are configured"]
        return [] if not all(reasons) else [reason for missing in reasons for reason in missing]

    async def __call__(self, exchange: Exchange, _call_next: CallNext) -> Reply:
        """Answer; nothing stands further in.

        Raises:
            Rejection: 404, unknown model; 503, no worker; 502 or 504, a worker failed; or a worker's own.
        """
        endpoint = exchange.endpoint
        if endpoint in GENERATIVE:
            service = self._state.services.get(exchange[MODEL])
            if service is None:
                raise unknown_model(exchange[MODEL])
            job = begin(exchange, service)
            service.engine.check(job.request)
            return await run(job)
        if endpoint in RELAYED:
            return await answer_query(exchange, self._find(exchange[MODEL], nameless=endpoint in NAMELESS))
        if endpoint is MODELS:
            return DataReply(list_models(exchange, self._cards()))
        if endpoint is ONE_MODEL:
            return DataReply(show_model(exchange, self._cards(), model_asked_for(exchange)))
        raise Rejection(404, f"nothing serves {endpoint.path}")

    def _find(self, name: str, *, nameless: bool) -> Service:
        """The service of a model; where no model has to be named, that of the only one there is."""
        service = self._state.services.get(name)
        if service is not None:
            return service
        if not nameless or name:
            raise unknown_model(name)
        if len(self.pools) != 1:
            raise InvalidRequest(400, "'model' must be one of several", "missing_required_field", param="model")
        return self._state.services[self.pools[0].model]

    def _cards(self) -> list[Card]:
        created = self._state.created
        return [
            Card(name, model.engine.name, created) for model in self.pools for name in (model.model, *model.aliases)
        ]

    def _build_service(self, model: ModelConfig) -> Service:
        pools = {}
        for role, config in model.roles().items():
            settings = PoolSettings(
                model.model,
                role,
                config.policy,
                model.api_key,
                self.health,
                self.keep_alive_seconds,
                model.transport,
                self.breaker,
                model.tls,
            )
            pool = pools[role] = self._find_pool(settings)
            self._state.uses.append((pool, pool.acquire(config.finder())))
        connect = self.connect_timeout_seconds
        patience = Patience(
            Limits(connect, read=self.read_timeout_seconds), Limits(connect, total=self.total_timeout_seconds)
        )
        seconds = math.ceil(self.health.interval_seconds)
        service = Service(model.model, model.engine, pools, patience, seconds, model.handoff, retry=self._state.retry)
        before = self._state.before.get(model.model)
        if service.links is not None and before is not None and before.links is not None:
            service.links.inherit(before.links)
        return service

    def _find_pool(self, settings: PoolSettings) -> Pool:
        """The pool of the predecessor with these settings, or a new one that knows what the predecessor's knew."""
        before = [pool for pool, _ in self._state.inherited]
        same = next((pool for pool in before if pool.settings == settings), None)
        kin = (pool for pool in before if pool.settings.is_kin(settings))
        return same or Pool(settings, {worker.url: worker.up for pool in kin for worker in pool.workers})


PLUGIN = PluginSpec("dispatch", Dispatch, needs=(PAYLOAD, MODEL, STREAM), fills=(SERVED, TRANSLATED))
