"""Workers that join, change and leave while requests run."""

import asyncio

import pytest

from plugins.dispatch.config import HealthConfig
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.worker_config import WorkerConfig
from tests.dispatch.membership import following, gauges, pool_of, ready, until_ready, worker_at
from tests.dispatch.scripted import Seen, answer_ok, scripted
from tests.dispatch.support import Answer, ask, body_of, exchange_of

pytestmark = pytest.mark.anyio


class Streams:
    """Streams whose ends wait until they are let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, seen: Seen) -> None:
        """One stream."""
        await seen.begin_stream(b'data: {"choices": [{"text": "a"}]}\n\n')
        await self.go.wait()
        await seen.send(b"e\r\ndata: [DONE]\n\n\r\n")
        await seen.end_stream()


def ended_well(answer: Answer) -> bool:
    """Whether a stream came to its end."""
    return answer.body.endswith(b"data: [DONE]\n\n")


async def test_a_worker_that_joins_is_probed_at_once_and_serves() -> None:
    """Whatever the interval is."""
    async with scripted(answer_ok) as first, scripted(answer_ok) as second, following(first.url) as (told, dispatch):
        told.name(first.url, second.url)
        await until_ready(dispatch, [first.url, second.url])
        assert (first.probes, second.probes) == (1, 1)
        assert gauges() == (2, 2, 0)


async def test_a_worker_that_leaves_ends_its_streams_and_gets_no_new_ones() -> None:
    """Its connections stay until then, and close when they are idle; what was reserved is given back."""
    streams = Streams()
    settings = {"keep_alive_seconds": 0.05}
    async with (
        scripted(streams) as leaver,
        scripted(answer_ok) as other,
        following(leaver.url, settings=settings) as (told, dispatch),
    ):
        gone = worker_at(dispatch, leaver.url)
        running = [asyncio.create_task(ask(dispatch, exchange_of(body_of(stream=True)))) for _ in range(20)]
        await leaver.until(lambda: len(leaver.seen) == 20)
        told.name(other.url)
        await until_ready(dispatch, [other.url])
        assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
        assert (gone.load, gauges(), leaver.open, len(leaver.seen)) == (20, (1, 1, 20), 20, 20)
        streams.go.set()
        assert all(map(ended_well, await asyncio.gather(*running)))
        assert (gone.load, gone.work, gauges()) == (0, 0, (1, 1, 0))
        await leaver.until(lambda: leaver.open == 0)


async def test_a_worker_that_left_is_not_probed_any_more() -> None:
    """Neither at intervals nor after a fault of a request that it still had."""

    async def break_off(seen: Seen) -> None:
        await seen.begin_stream(b"data: {}\n\n")
        await go.wait()
        await seen.hang_up()

    go = asyncio.Event()
    quick = HealthConfig(interval_seconds=0.01)
    async with (
        scripted(break_off) as leaver,
        scripted(answer_ok) as other,
        following(leaver.url, other.url, settings={"health": quick}, policy=LeastLoaded()) as (told, dispatch),
    ):
        running = asyncio.create_task(ask(dispatch, exchange_of(body_of(stream=True))))
        await leaver.until(lambda: len(leaver.seen) == 1)
        told.name(other.url)
        probes = leaver.probes
        go.set()
        assert not ended_well(await running)
        await other.until(lambda: other.probes > 20)
        assert leaver.probes <= probes + 1  # one may have been on its way
        assert (ready(dispatch), gauges()) == ([other.url], (1, 1, 0))


async def test_a_worker_that_returns_is_a_new_one() -> None:
    """It is probed before it serves, has no faults, and no load; what the old one still has ends by itself."""
    streams = Streams()
    async with (
        scripted(streams) as leaver,
        scripted(answer_ok) as other,
        following(leaver.url, other.url, policy=LeastLoaded()) as (told, dispatch),
    ):
        old = worker_at(dispatch, leaver.url)
        old.faults = 3
        running = asyncio.create_task(ask(dispatch, exchange_of(body_of(stream=True))))
        await leaver.until(lambda: len(leaver.seen) == 1)
        told.name(other.url)
        told.name(other.url, leaver.url)
        new = worker_at(dispatch, leaver.url)
        assert (new is old, new.up, new.faults, new.load, old.load) == (False, None, 0, 0, 1)
        await until_ready(dispatch, [leaver.url, other.url])
        assert leaver.probes == 2
        streams.go.set()
        assert ended_well(await running)
        assert (new.load, old.load, gauges()) == (0, 0, (2, 2, 0))


async def test_a_worker_that_joins_late_is_eased_in() -> None:
    """It has a tenth of its share at first."""
    async with (
        scripted(answer_ok) as first,
        scripted(answer_ok) as second,
        following(first.url) as (told, dispatch),
    ):
        pool_of(dispatch)._roster.shares._began -= 60.0
        told.name(first.url, WorkerConfig(second.url, weight=2.0))
        await until_ready(dispatch, [first.url, second.url])
        assert [worker_at(dispatch, url).share for url in (first.url, second.url)] == [1.0, 0.2]


async def test_weight_and_bootstrap_port_change_in_place() -> None:
    """With load, health and connections kept."""
    async with scripted(answer_ok) as worker, following(worker.url) as (told, dispatch):
        one = worker_at(dispatch, worker.url)
        told.name(WorkerConfig(worker.url, weight=3.0, bootstrap_port=9))
        assert worker_at(dispatch, worker.url) is one
        assert (one.weight, one.share, one.bootstrap_port, one.up, worker.probes) == (3.0, 3.0, 9, True, 1)


async def test_a_draining_worker_is_known_and_not_ready() -> None:
    """It is probed and counted, ends what it has, and serves again at once when it is told to."""
    streams = Streams()
    async with scripted(streams) as worker, following(worker.url) as (told, dispatch):
        running = asyncio.create_task(ask(dispatch, exchange_of(body_of(stream=True))))
        await worker.until(lambda: len(worker.seen) == 1)
        told.name(WorkerConfig(worker.url, draining=True))
        assert (ready(dispatch), gauges()) == ([], (1, 0, 1))
        assert dispatch.unready() == ["m: no generation worker is ready"]
        assert (await ask(dispatch, exchange_of(body_of()))).error.code == "no_worker_ready"
        streams.go.set()
        assert ended_well(await running)
        told.name(worker.url)
        assert (ready(dispatch), gauges(), worker.probes) == ([worker.url], (1, 1, 0), 1)


async def test_a_worker_that_a_policy_drains_stays_out_whatever_the_configuration_says() -> None:
    """Each reason has to go."""
    async with scripted(answer_ok) as worker, following(worker.url) as (told, dispatch):
        roster, one = pool_of(dispatch)._roster, worker_at(dispatch, worker.url)
        roster.drain(one)
        told.name(WorkerConfig(worker.url, draining=True))
        told.name(worker.url)
        assert ready(dispatch) == []
        roster.drain(one, draining=False)
        assert ready(dispatch) == [worker.url]
