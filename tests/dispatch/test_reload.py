"""A reload that does not touch a pool leaves its health, its load and its connections alone."""

import asyncio
from typing import Any

import pytest

from kernel import ClientGone
from plugins.dispatch.config import HealthConfig, ModelConfig
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.metrics import WORKERS, WORKERS_UP, child
from tests.dispatch.scripted import answer_ok, hang, scripted
from tests.dispatch.support import QUIET, ask, body_of, exchange_of, loads, pools, relay, single

pytestmark = pytest.mark.anyio


async def reloaded(old: Dispatch, *models: ModelConfig, **settings: Any) -> Dispatch:
    """A started successor."""
    new = Dispatch(models, **{"health": QUIET, **settings})
    new.succeed(old)
    await new.start()
    return new


async def started(*models: ModelConfig) -> Dispatch:
    """The first one."""
    dispatch = Dispatch(models, health=QUIET)
    await dispatch.start()
    return dispatch


async def test_an_untouched_pool_goes_on_as_it_is() -> None:
    """Its workers are not probed anew, and the connection of an earlier request is used."""
    async with scripted(answer_ok) as worker, scripted(answer_ok) as added:
        old = await started(single(worker.url))
        await ask(old, exchange_of(body_of()))
        new = await reloaded(old, single(worker.url), ModelConfig("other", workers=(added.url,)))
        await old.stop()
        assert (await ask(new, exchange_of(body_of()))).json == {"ok": True}
        assert worker.probes == 1
        assert len({seen.connection for seen in worker.seen}) == 1
        await new.stop()
        await worker.until(lambda: worker.open == 0)


async def test_load_is_seen_by_both_versions() -> None:
    """A request that began before the reload still counts for the policy after it."""
    async with scripted(hang) as first, scripted(hang) as second:
        model = single(first.url, second.url, policy=LeastLoaded())
        old = await started(model)
        exchange = exchange_of(body_of())
        task = asyncio.create_task(ask(old, exchange))
        await first.until(lambda: len(first.seen) == 1)
        new = await reloaded(old, model, ModelConfig("other", workers=("http://127.0.0.1:1",)))
        assert loads(new)[:2] == [1, 0]
        exchange.interrupt(ClientGone())
        with pytest.raises(ClientGone):
            await task
        assert loads(new)[:2] == [0, 0]
        await old.stop()
        await new.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"policy": LeastLoaded()},
        {"health": HealthConfig(interval_seconds=61)},
        {"keep_alive_seconds": 1.0},
    ],
)
async def test_a_touched_pool_is_a_new_one(change: dict[str, Any]) -> None:
    """The old one serves what began on it, and ends with the old version."""
    async with scripted(answer_ok) as worker:
        old = await started(single(worker.url))
        policy = {"policy": change.pop("policy")} if "policy" in change else {}
        new = await reloaded(old, single(worker.url, **policy), **change)
        assert pools(new)[0] is not pools(old)[0]
        assert (await ask(old, exchange_of(body_of()))).json == {"ok": True}
        await old.stop()
        assert (await ask(new, exchange_of(body_of()))).json == {"ok": True}
        await new.stop()


async def test_a_change_of_one_role_leaves_the_other_role_alone() -> None:
    """A pool is the workers of one model and one role."""
    async with scripted(answer_ok) as context, scripted(answer_ok) as first, scripted(answer_ok) as second:
        old = await started(relay([context.url], [first.url]))
        new = await reloaded(old, relay([context.url], [first.url, second.url], body="msgpack"))
        assert pools(new)[0] is pools(old)[0]
        assert pools(new)[1] is pools(old)[1]
        assert [len(pool.workers) for pool in pools(new)] == [1, 2]
        await old.stop()
        await new.stop()
        assert (context.probes, first.probes, second.probes) == (1, 1, 1)


async def test_a_refused_reload_changes_nothing() -> None:
    """A successor that never started, or is stopped again, takes no pool with it."""
    async with scripted(answer_ok) as worker:
        old = await started(single(worker.url))
        for start in (False, True):
            new = Dispatch((single(worker.url),), health=QUIET)
            new.succeed(old)
            if start:
                await new.start()
            await new.stop()
            await new.stop()
        assert (await ask(old, exchange_of(body_of()))).json == {"ok": True}
        assert worker.probes == 1
        await old.stop()
        await worker.until(lambda: worker.open == 0)


async def test_pools_that_are_dropped_end_with_the_version_that_had_them() -> None:
    """The gauges know only what is still there."""
    async with scripted(answer_ok) as worker, scripted(answer_ok) as other:
        old = await started(ModelConfig("dropped", workers=(worker.url,)))
        new = await reloaded(old, ModelConfig("kept", workers=(other.url,)))
        assert child(WORKERS, "dropped", "generation")._value.get() == 1
        await old.stop()
        assert child(WORKERS, "dropped", "generation")._value.get() == 0
        assert child(WORKERS_UP, "dropped", "generation")._value.get() == 0
        await new.stop()
