"""Ejected workers under traffic: who gets the requests, and which one tries them."""

import asyncio

import pytest

from kernel import ClientGone
from plugins.dispatch.breaker import BreakerConfig
from plugins.dispatch.circuit import State
from plugins.dispatch.config import HealthConfig
from plugins.dispatch.job import begin
from plugins.dispatch.leg import Leg
from plugins.dispatch.pair import _choose
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.rejections import NoWorker
from plugins.dispatch.worker import Role, Worker
from tests.dispatch.policies.support import Clock, chat
from tests.dispatch.retries.workers import declines
from tests.dispatch.scripted import Seen, answer_ill, answer_ok, hang, scripted
from tests.dispatch.support import ask, body_of, exchange_of, loads, pools, relay, running, single

pytestmark = pytest.mark.anyio

FAST = BreakerConfig(failures=2, open_seconds=5.0, max_open_seconds=5.0)


def ejected(dispatch: Dispatch, pool: int = 0) -> tuple[Worker, Clock]:
    """Eject the first worker of a pool; its breaker goes by the clock."""
    breakers, clock = pools(dispatch)[pool].breakers, Clock()
    breakers.clock = clock
    worker = pools(dispatch)[pool].workers[0]
    breakers._open(worker, "consecutive")
    return worker, clock


async def test_a_worker_that_fails_requests_is_ejected_and_comes_back(transport: str) -> None:
    """It answers its health checks all the while."""
    async with scripted(declines(500)) as ill, scripted(answer_ok) as well:
        model = single(ill.url, well.url, transport=transport)
        async with running(model, breaker=FAST, health=HealthConfig(60, slow_start_seconds=0)) as dispatch:
            breakers, clock = pools(dispatch)[0].breakers, Clock()
            breakers.clock = clock
            for _ in range(10):
                assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
            assert len(ill.seen) == 2
            ill.script = answer_ok
            clock.now += 5
            for _ in range(10):
                await ask(dispatch, exchange_of(body_of()))
            assert len(ill.seen) > 4


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_requests_that_are_at_fault_eject_nobody(status: int, transport: str) -> None:
    """A client that sends nothing but nonsense does not take a fleet out."""
    async with scripted(declines(status)) as worker, scripted(declines(status)) as other:
        model = single(worker.url, other.url, transport=transport)
        async with running(model, breaker=FAST) as dispatch:
            for _ in range(10):
                assert (await ask(dispatch, exchange_of(body_of()))).error.status == status
            assert pools(dispatch)[0].breakers.out == set()


async def test_of_requests_at_the_same_time_one_tries_the_worker(transport: str) -> None:
    """All others go elsewhere until it has answered."""
    go = asyncio.Event()

    async def slowly(seen: Seen) -> None:
        await go.wait()
        await answer_ok(seen)

    async with scripted(slowly) as tried, scripted(answer_ok) as well:
        async with running(single(tried.url, well.url, transport=transport), breaker=FAST) as dispatch:
            worker, clock = ejected(dispatch)
            clock.now += 5
            tasks = [asyncio.create_task(ask(dispatch, exchange_of(body_of()))) for _ in range(20)]
            await well.until(lambda: len(well.seen) == 19)
            await tried.until(lambda: len(tried.seen) == 1)
            assert str(worker.circuit.state) == "probed"
            go.set()
            await asyncio.gather(*tasks)
            assert worker.circuit.state is State.CLOSED
        assert len(tried.seen) == 1


async def test_a_client_that_leaves_gives_the_place_back(transport: str) -> None:
    """The next request tries the worker."""
    async with scripted(hang) as tried, scripted(answer_ok) as well:
        model = single(tried.url, well.url, transport=transport)
        async with running(model, breaker=FAST) as dispatch:
            worker, clock = ejected(dispatch)
            clock.now += 5
            exchange = exchange_of(body_of())
            task = asyncio.create_task(ask(dispatch, exchange))
            while not tried.seen:
                if task.done():
                    exchange = exchange_of(body_of())
                    task = asyncio.create_task(ask(dispatch, exchange))
                await asyncio.sleep(0)
            exchange.interrupt(ClientGone())
            with pytest.raises(ClientGone):
                await task
            assert str(worker.circuit.state) == "half_open"
            tried.script = answer_ok
            while worker.circuit.state is not State.CLOSED:
                await ask(dispatch, exchange_of(body_of()))


async def test_a_retry_does_not_try_a_worker_if_there_is_another(transport: str) -> None:
    """It has failed once already."""
    async with scripted(answer_ok) as tried, scripted(declines(500)) as ill, scripted(answer_ok) as well:
        model = single(tried.url, ill.url, well.url, transport=transport)
        async with running(model, breaker=FAST) as dispatch:
            _, clock = ejected(dispatch)
            clock.now += 5
            pool = pools(dispatch)[0]
            reserved = pool.reserve(chat("x"), [pool.workers[1]])
            assert reserved is not None
            assert reserved.worker is pool.workers[2]
            reserved.release()


async def test_a_pair_is_chosen_only_if_both_sides_may_be() -> None:
    """The place on the context worker goes back when there is no generation worker for it."""
    async with scripted(answer_ok) as one, scripted(answer_ok) as other, scripted(answer_ok) as generation:
        model = relay([one.url, other.url], [generation.url], schedule="generation_first")
        async with running(model, breaker=FAST) as dispatch:
            worker, clock = ejected(dispatch)
            clock.now += 5
            contexts, generations = pools(dispatch)
            contexts._roster.drain(contexts.workers[1])
            exchange = exchange_of(body_of())
            job = begin(exchange, dispatch._state.services["m"])
            context, last = Leg(job, Role.CONTEXT), Leg(job, Role.GENERATION)
            last.failed = tuple(generations.workers)
            with pytest.raises(NoWorker):
                _choose(context, last)
            assert (str(worker.circuit.state), loads(dispatch)) == ("half_open", [0, 0, 0])
            await exchange.release()


async def test_a_pair_whose_one_side_is_all_out_is_not_begun() -> None:
    """Nobody does half of the work."""
    async with scripted(answer_ok) as context, scripted(answer_ok, answer_ill) as generation:
        model = relay([context.url], [generation.url], schedule="generation_first")
        async with running(model) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of()))).error.status == 503
        assert context.seen == []
