"""Driving who the workers of a pool are: a discovery that is told what to find, and what a pool made of it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from attrs import define, field, frozen

from plugins.dispatch.config import ModelConfig
from plugins.dispatch.discovery.contract import Audience
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.pool import Pool
from plugins.dispatch.worker import Worker
from plugins.dispatch.worker_config import WorkerConfig
from plugins.metrics import RESERVATIONS, WORKERS, WORKERS_UP, child
from tests.dispatch.support import QUIET, pools, running, until


@define(eq=False)
class Told:
    """Whom a discovery shall name, and who listens to it."""

    workers: tuple[WorkerConfig, ...] = ()
    audiences: list[Audience] = field(factory=list)
    fault: Exception | None = None
    faults: int = 0

    def name(self, *workers: str | WorkerConfig) -> None:
        """Name these from now on."""
        self.workers = tuple(WorkerConfig(worker) if isinstance(worker, str) else worker for worker in workers)
        for audience in self.audiences:
            audience.publish(self.workers)


@frozen
class ToldDiscovery:
    """Finds whom it is told to find."""

    told: Told

    async def follow(self, audience: Audience, /) -> None:
        """Name them, and go on listening."""
        if self.told.fault is not None:
            self.told.faults += 1
            raise self.told.fault
        self.told.audiences.append(audience)
        if self.told.workers:
            audience.publish(self.told.workers)
        try:
            await anyio.sleep_forever()
        finally:
            self.told.audiences.remove(audience)


def found(told: Told, name: str = "m", **fields: Any) -> ModelConfig:
    """A model whose workers are found by a discovery that is told whom to find."""
    return ModelConfig(name, discovery=ToldDiscovery(told), **fields)


@asynccontextmanager
async def following(
    *urls: str, settings: dict[str, Any] | None = None, **fields: Any
) -> AsyncIterator[tuple[Told, Dispatch]]:
    """Dispatch, started, with workers that may change."""
    told = Told()
    told.name(*urls)
    async with running(found(told, **fields), **(settings or {})) as dispatch:
        yield told, dispatch
    assert gauges() == (0, 0, 0)


async def reloaded(old: Dispatch, *models: ModelConfig, **settings: Any) -> Dispatch:
    """A started successor."""
    new = Dispatch(models, **{"health": QUIET, **settings})
    new.succeed(old)
    await new.start()
    return new


def pool_of(dispatch: Dispatch) -> Pool:
    """The only pool."""
    (pool,) = pools(dispatch)
    return pool


def worker_at(dispatch: Dispatch, url: str) -> Worker:
    """The worker with that URL."""
    (worker,) = (worker for worker in pool_of(dispatch).workers if worker.url == url)
    return worker


def ready(dispatch: Dispatch) -> list[str]:
    """Who takes requests."""
    return [worker.url for worker in pool_of(dispatch).ready]


async def until_ready(dispatch: Dispatch, urls: Sequence[str]) -> None:
    """Wait until exactly these take requests."""
    await until(lambda: sorted(ready(dispatch)) == sorted(urls))


def gauges(model: str = "m", role: str = "generation") -> tuple[float, float, float]:
    """Workers that are configured, those that take requests, and what is reserved on them."""
    values = [child(gauge, model, role)._value.get() for gauge in (WORKERS, WORKERS_UP, RESERVATIONS)]
    return values[0], values[1], values[2]
