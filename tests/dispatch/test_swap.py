"""All workers of a pool are named anew at once: somebody takes requests at every moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from plugins.dispatch.config import HealthConfig
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.worker_config import WorkerConfig
from tests.dispatch.membership import following, gauges, pool_of, ready, until_ready, worker_at
from tests.dispatch.scripted import ScriptedWorker, Seen, answer_ill, answer_ok, hang, scripted
from tests.dispatch.support import ask, body_of, exchange_of

pytestmark = pytest.mark.anyio

QUICK = {"health": HealthConfig(interval_seconds=0.01, timeout_seconds=60)}


@asynccontextmanager
async def replaced_by_an_ill_one() -> AsyncIterator[tuple[ScriptedWorker, ScriptedWorker, Dispatch]]:
    """The only worker, the one that is named in its place, which is not well, and who follows."""
    async with (
        scripted(answer_ok) as old,
        scripted(answer_ok, probe=answer_ill) as new,
        following(old.url, settings=QUICK) as (told, dispatch),
    ):
        told.name(new.url)
        yield old, new, dispatch


async def test_those_before_serve_until_one_of_those_after_is_up() -> None:
    """Then they leave, and no more requests come to them."""
    let = asyncio.Event()

    async def wait(seen: Seen) -> None:
        await let.wait()
        await answer_ok(seen)

    async with (
        scripted(answer_ok) as one,
        scripted(answer_ok) as two,
        scripted(answer_ok, probe=wait) as late,
        scripted(answer_ok, probe=hang) as never,
        following(one.url, two.url) as (told, dispatch),
    ):
        told.name(late.url, never.url)
        assert ready(dispatch) == [one.url, two.url]
        assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
        assert gauges() == (4, 2, 0)

        let.set()
        await until_ready(dispatch, [late.url])
        assert gauges() == (2, 1, 0)
        before = len(one.seen) + len(two.seen)
        assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
        assert (before, len(one.seen) + len(two.seen), len(late.seen)) == (1, 1, 1)


async def test_those_after_may_be_ill_for_long() -> None:
    """What was probed and is not well yet, is waited for as well; those before are still probed."""
    async with replaced_by_an_ill_one() as (old, new, dispatch):
        await new.until(lambda: new.probes > 3)
        assert ready(dispatch) == [old.url]
        probed = old.probes
        await old.until(lambda: old.probes > probed + 1)

        new.probe = answer_ok
        await until_ready(dispatch, [new.url])
        assert [worker.url for worker in pool_of(dispatch).workers] == [new.url]


async def test_one_before_that_dies_is_out() -> None:
    """Nobody takes requests then, until one of those after does."""
    async with replaced_by_an_ill_one() as (old, new, dispatch):
        await old.stop()
        await until_ready(dispatch, [])
        new.probe = answer_ok
        await until_ready(dispatch, [new.url])


async def test_nobody_is_waited_for_who_drains() -> None:
    """Those before leave at once, since nobody will come."""
    async with scripted(answer_ok) as old, scripted(answer_ok) as new, following(old.url) as (told, dispatch):
        told.name(WorkerConfig(new.url, draining=True))
        assert ready(dispatch) == []
        assert gauges() == (1, 0, 0)


async def test_those_before_may_be_named_again() -> None:
    """As if they had never been meant to go."""
    async with (
        scripted(answer_ok) as old,
        scripted(answer_ok, probe=hang) as new,
        following(old.url) as (told, dispatch),
    ):
        worker = worker_at(dispatch, old.url)
        told.name(new.url)
        told.name(old.url)
        assert worker_at(dispatch, old.url) is worker
        assert (ready(dispatch), gauges(), old.probes) == ([old.url], (1, 1, 0), 1)


async def test_one_that_stays_is_enough() -> None:
    """The others leave at once, whoever is new."""
    async with (
        scripted(answer_ok) as stays,
        scripted(answer_ok) as leaves,
        scripted(answer_ok, probe=hang) as new,
        following(stays.url, leaves.url) as (told, dispatch),
    ):
        told.name(stays.url, new.url)
        assert ready(dispatch) == [stays.url]
