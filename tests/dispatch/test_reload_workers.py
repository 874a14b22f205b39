"""A reload that changes who the workers of a pool are keeps what did not change, and takes nothing back that runs."""

import asyncio
from typing import Any

import pytest

from kernel import ClientGone, Exchange
from plugins.dispatch.config import HealthConfig, ModelConfig
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.policies.conversation import StickyConversation
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.worker_config import WorkerConfig
from plugins.slots import CONVERSATION, Conversation
from tests.dispatch.membership import Told, found, gauges, pool_of, ready, reloaded, until_ready, worker_at
from tests.dispatch.scripted import ScriptedWorker, answer_ok, hang, scripted
from tests.dispatch.support import QUIET, ask, body_of, exchange_of, loads, pools, running, single, until

pytestmark = pytest.mark.anyio


def conversing() -> Exchange:
    """A request of one conversation."""
    exchange = exchange_of(body_of())
    exchange[CONVERSATION] = Conversation("c", "x-session-id", None)
    return exchange


async def test_workers_that_stay_keep_everything() -> None:
    """Health, load and connections; the new one is probed, the old one leaves with the old version."""
    async with scripted(answer_ok) as stays, scripted(answer_ok) as leaves, scripted(answer_ok) as joins:
        old = Dispatch((single(stays.url, leaves.url),), health=QUIET)
        await old.start()
        for _ in range(2):
            await ask(old, exchange_of(body_of()))
        worker, gone = pool_of(old).workers
        worker.faults = 2
        new = await reloaded(old, single(joins.url, stays.url))
        assert pool_of(new) is pool_of(old)
        assert (worker_at(new, stays.url) is worker, worker.faults) == (True, 2)
        assert ready(new) == [stays.url, joins.url]
        assert gauges() == (2, 2, 0)
        assert gone in pool_of(new).workers
        await old.stop()
        assert gone not in pool_of(new).workers
        for _ in range(4):
            assert (await ask(new, exchange_of(body_of()))).json == {"ok": True}
        assert (stays.probes, joins.probes, leaves.probes) == (1, 1, 1)
        assert len({seen.connection for seen in stays.seen}) == 1
        assert (len(stays.seen), len(joins.seen), len(leaves.seen)) == (3, 2, 1)
        await new.stop()
    assert gauges() == (0, 0, 0)


async def test_a_conversation_stays_where_it_is() -> None:
    """What the policy knows is of use as long as the worker stays."""
    async with scripted(answer_ok) as first, scripted(answer_ok) as second, scripted(answer_ok) as third:
        policy = StickyConversation()
        async with running(single(first.url, second.url, policy=policy)) as old:
            await ask(old, conversing())
            (had,) = [worker for worker in (first, second) if worker.seen]
            new = await reloaded(old, single(third.url, first.url, second.url, policy=StickyConversation()))
            for _ in range(5):
                await ask(new, conversing())
            assert len(had.seen) == 6
            await new.stop()


async def test_requests_of_the_old_version_go_on() -> None:
    """On a worker that the new one does not have; what they hold is given back there."""
    async with scripted(hang) as leaves, scripted(answer_ok) as joins:
        old = Dispatch((single(leaves.url),), health=QUIET)
        await old.start()
        exchange = exchange_of(body_of())
        task = asyncio.create_task(ask(old, exchange))
        await leaves.until(lambda: len(leaves.seen) == 1)
        new = await reloaded(old, single(joins.url))
        (gone,) = (worker for worker in pool_of(old).workers if worker.url == leaves.url)
        assert (await ask(new, exchange_of(body_of()))).json == {"ok": True}
        assert (gone.load, gauges()) == (1, (1, 1, 1))
        exchange.interrupt(ClientGone())
        with pytest.raises(ClientGone):
            await task
        await old.stop()
        assert (gone.load, gauges(), len(leaves.seen)) == (0, (1, 1, 0), 1)
        await new.stop()


@pytest.mark.parametrize("settled", [True, False])
async def test_a_reload_that_fails_leaves_the_old_membership_as_it_was(settled: bool) -> None:
    """Whether this plugin's own start failed, or another one's after it."""
    async with scripted(answer_ok) as first, scripted(answer_ok) as second, scripted(answer_ok) as other:
        workers = (WorkerConfig(first.url, weight=2.0), WorkerConfig(second.url))
        async with running(ModelConfig("m", workers=workers)) as old:
            before = pool_of(old).workers
            new = Dispatch((single(other.url, first.url),), health=QUIET)
            new.succeed(old)
            if settled:
                await new.start()
            else:
                new._build_service(new.pools[0])
                await until_ready(old, [first.url, second.url, other.url])
                assert before[0].weight == 2.0
            await new.stop()
            assert pool_of(old).workers == before
            assert [(worker.share, worker.up) for worker in before] == [(2.0, True), (1.0, True)]
            assert (ready(old), gauges()) == ([first.url, second.url], (2, 2, 0))


@pytest.mark.parametrize(
    "change",
    [{"policy": LeastLoaded()}, {"health": HealthConfig(interval_seconds=61)}, {"keep_alive_seconds": 1.0}],
)
async def test_a_pool_with_other_settings_knows_who_is_up(change: dict[str, Any]) -> None:
    """It is a new one, but does not have to wait for probes that may take long."""
    async with scripted(answer_ok) as worker, running(single(worker.url)) as old:
        worker.probe = hang
        policy = {"policy": change.pop("policy")} if "policy" in change else {}
        new = await reloaded(old, single(worker.url, **policy), **change)
        assert pool_of(new) is not pool_of(old)
        assert (await ask(new, exchange_of(body_of()))).json == {"ok": True}
        await new.stop()


async def serving(dispatch: Dispatch, *workers: ScriptedWorker) -> list[int]:
    """How many of six requests each worker gets."""
    before = [len(worker.seen) for worker in workers]
    for _ in range(6):
        await ask(dispatch, exchange_of(body_of()))
    return [len(worker.seen) - count for worker, count in zip(workers, before, strict=True)]


async def test_the_newest_user_that_lives_has_the_say() -> None:
    """In whatever order the others go."""
    async with scripted(answer_ok) as first, scripted(answer_ok) as second:
        one = Dispatch((single(first.url),), health=QUIET)
        await one.start()
        two = await reloaded(one, single(second.url))
        assert await serving(one, first, second) == [0, 6]
        three = await reloaded(two, single(first.url))
        assert await serving(one, first, second) == [6, 0]
        await three.stop()
        assert await serving(one, first, second) == [0, 6]
        await one.stop()
        assert await serving(two, first, second) == [0, 6]
        await two.stop()
        assert gauges() == (0, 0, 0)


async def test_a_successor_that_does_not_know_its_workers_goes_on_with_the_old_ones() -> None:
    """As when the file that names them is missing; also after the old version has ended."""
    told = Told()
    async with scripted(answer_ok) as worker, scripted(answer_ok) as other:
        old = Dispatch((single(worker.url),), health=QUIET)
        await old.start()
        new = Dispatch((found(told),), health=QUIET)
        new.succeed(old)
        starting = asyncio.create_task(new.start())
        await until(lambda: bool(told.audiences))
        told.audiences[0].complain(["it is not there"])
        await starting
        await old.stop()
        assert ready(new) == [worker.url]
        told.name(other.url)
        await until_ready(new, [other.url])
        assert loads(new) == [0]
        await new.stop()
        assert told.audiences == []


async def test_two_versions_with_the_same_discovery_follow_it_once() -> None:
    """So that what is wrong is told once."""
    told = Told()
    async with scripted(answer_ok) as worker:
        told.name(worker.url)
        async with running(found(told)) as old:
            new = await reloaded(old, found(told), ModelConfig("other", workers=("http://127.0.0.1:1",)))
            assert pools(new)[0] is pool_of(old)
            assert len(told.audiences) == 1
            await new.stop()
            assert len(told.audiences) == 1
    assert told.audiences == []
