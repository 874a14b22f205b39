"""However a request ends, nothing is left: no load, no connection, and its end is counted once."""

import asyncio

import pytest

from kernel import COMPLETED, FAILED, ClientGone, Rejection
from kernel.testing import read_reply, run_chain
from plugins.dispatch.client import TimeoutFault, TransportFault
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.policy import Policy
from plugins.metrics import GENERATION
from tests.dispatch.counters import Counters
from tests.dispatch.scripted import Seen, answer_ok, framed, hang, scripted
from tests.dispatch.streams import FIRST, SECOND, open_stream, stream, stream_and_hang
from tests.dispatch.support import ask, body_of, exchange_of, loads, pools, running, single, until

pytestmark = pytest.mark.anyio


async def stream_and_die(seen: Seen) -> None:
    """Stream one chunk and a half."""
    await seen.begin_stream(FIRST)
    await seen.send(framed(SECOND)[:-5])
    await seen.hang_up()


async def test_a_whole_answer_gives_its_load_back_before_it_is_written() -> None:
    """A slow client holds no worker once the worker is done."""
    legs = Counters(GENERATION)
    async with scripted(answer_ok) as worker, running(single(worker.url)) as dispatch:
        exchange = exchange_of(body_of())
        await run_chain([dispatch], exchange)
        assert loads(dispatch) == [0]
        await exchange.release()
    assert legs.changes() == {"total": 1, "completed": 1, "complete": 1}


async def test_a_stream_holds_its_load_to_its_last_byte() -> None:
    """The worker is busy for as long as it streams."""
    legs = Counters(GENERATION)
    async with scripted(stream) as worker, running(single(worker.url)) as dispatch:
        exchange, reply = await open_stream(dispatch)
        written = await read_reply(reply, exchange)
        assert loads(dispatch) == [0]
        assert worker.open == 1  # kept for the next request
    assert written.body == FIRST + SECOND
    assert reply.outcome is not None
    assert reply.outcome.name == COMPLETED
    changes = legs.changes()
    later = changes.pop("per_token", 0)
    assert later <= 1  # both chunks may have come together
    assert changes == {"total": 1, "completed": 1, "complete": 1, "first_token": 1}


async def test_a_worker_that_is_done_is_free_while_the_client_still_reads() -> None:
    """What the end of a stream costs further out is not the worker's load."""
    async with scripted(stream) as worker, running(single(worker.url)) as dispatch:
        exchange, reply = await open_stream(dispatch)
        assert b"".join([chunk async for chunk in reply.source]) == FIRST + SECOND
        assert loads(dispatch) == [0]
        await exchange.release()


async def test_a_stream_that_breaks_is_a_fault_in_the_middle() -> None:
    """What was whole has gone out; the worker is out until a probe finds it well."""
    legs = Counters(GENERATION)
    async with scripted(stream_and_die) as worker, running(single(worker.url)) as dispatch:
        exchange, reply = await open_stream(dispatch)
        written = await read_reply(reply, exchange)
        assert loads(dispatch) == [0]
        assert pools(dispatch)[0].workers[0].faults == 1
    assert written.body.startswith(FIRST)
    assert not written.ended
    assert reply.outcome is not None
    assert reply.outcome.name == FAILED
    assert isinstance(reply.outcome.error, TransportFault)
    assert "127.0.0.1" not in str(reply.outcome.error)
    changes = legs.changes()
    changes.pop("per_token", None)
    assert changes == {"total": 1, "completed": 1, "error": 1, "first_token": 1}


async def test_a_stream_that_stops_is_a_timeout_in_the_middle() -> None:
    """Silence for longer than the configured time between two reads closes the connection."""
    async with scripted(stream_and_hang) as worker, running(single(worker.url), read_timeout_seconds=0.05) as dispatch:
        exchange, reply = await open_stream(dispatch)
        await read_reply(reply, exchange)
        await worker.until(lambda: worker.open == 0)
        assert pools(dispatch)[0].workers[0].up is True
    assert reply.outcome is not None
    assert isinstance(reply.outcome.error, TimeoutFault)


async def test_a_long_stream_has_no_time_limit_in_all() -> None:
    """The limit for whole answers does not cut a stream that goes on."""

    async def slowly(seen: Seen) -> None:
        await seen.begin_stream(FIRST)
        await over.wait()
        await seen.send(framed(SECOND))
        await seen.end_stream()

    over = asyncio.Event()
    async with scripted(slowly) as worker, running(single(worker.url), total_timeout_seconds=0.01) as dispatch:
        exchange, reply = await open_stream(dispatch)
        asyncio.get_running_loop().call_later(0.05, over.set)
        written = await read_reply(reply, exchange)
    assert written.body == FIRST + SECOND


async def test_a_rejection_gives_the_load_back() -> None:
    """A worker's own error ends the leg like any other answer."""

    async def reject(seen: Seen) -> None:
        await seen.answer(b"{}", "500 No")

    legs = Counters(GENERATION)
    async with scripted(reject) as worker, running(single(worker.url)) as dispatch:
        exchange = exchange_of(body_of())
        with pytest.raises(Rejection):
            await run_chain([dispatch], exchange)
        assert loads(dispatch) == [0]
        await exchange.release()
    assert legs.changes() == {"total": 1, "completed": 1, "error": 1}


async def test_a_failure_further_out_counts_as_one() -> None:
    """A stream whose bytes came whole, but that broke in another plugin, was no success."""

    def refuse(_chunk: bytes) -> bytes:
        raise ValueError("no")

    legs = Counters(GENERATION)
    async with scripted(stream_and_hang) as worker, running(single(worker.url)) as dispatch:
        exchange, reply = await open_stream(dispatch)
        reply.attach(step=refuse)
        await read_reply(reply, exchange)
        assert loads(dispatch) == [0]
        await worker.until(lambda: worker.open == 0)
    assert legs.changes() == {"total": 1, "completed": 1, "error": 1, "first_token": 1}


async def test_a_leg_that_finds_another_worker_counts_a_retry() -> None:
    """One leg, two attempts."""
    legs = Counters(GENERATION)
    async with (
        scripted(answer_ok) as gone,
        scripted(answer_ok) as there,
        running(single(gone.url, there.url)) as dispatch,
    ):
        await gone.stop()
        await ask(dispatch, exchange_of(body_of()))
        await gone.start()
    assert legs.changes() == {"total": 1, "retry": 1, "completed": 1, "complete": 1}


@pytest.mark.parametrize("policy", [RoundRobin(), LeastLoaded()])
async def test_a_burst_spreads_before_anything_is_answered(policy: Policy) -> None:
    """A hundred requests at once: load counts from the choice of a worker, not from its answer."""
    async with scripted(hang) as first, scripted(hang) as second, scripted(hang) as third:
        urls = (first.url, second.url, third.url)
        async with running(single(*urls, policy=policy)) as dispatch:
            exchanges = [exchange_of(body_of()) for _ in range(99)]
            tasks = [asyncio.create_task(ask(dispatch, exchange)) for exchange in exchanges]
            await until(lambda: [len(worker.seen) for worker in (first, second, third)] == [33, 33, 33])
            assert loads(dispatch) == [33, 33, 33]
            for exchange in exchanges:
                exchange.interrupt(ClientGone())
            await asyncio.gather(*tasks, return_exceptions=True)
            assert loads(dispatch) == [0, 0, 0]
