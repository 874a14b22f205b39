"""Whoever leaves a request, or cancels it, at whatever moment: the worker stops, and nothing is left."""

import asyncio

import pytest

from kernel import CLIENT_GONE, NEVER_BEGUN, ClientGone, Rejection
from kernel.testing import read_reply
from plugins.dispatch.engine import Body, Handoff, Request
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.worker import Role
from plugins.metrics import GENERATION
from tests.dispatch.counters import Counters
from tests.dispatch.retries.fleets import fleet_of
from tests.dispatch.scripted import hang, scripted
from tests.dispatch.streams import open_stream, stream, stream_and_hang
from tests.dispatch.support import ask, body_of, exchange_of, loads, running, single

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("asks_for_stream", [False, True])
async def test_a_client_that_leaves_before_the_answer_stops_the_worker(asks_for_stream: bool) -> None:
    """The connection to the worker is closed, so that it does not work for nobody."""
    legs = Counters(GENERATION)
    async with scripted(hang) as worker, running(single(worker.url)) as dispatch:
        exchange = exchange_of(body_of(stream=asks_for_stream))
        task = asyncio.create_task(ask(dispatch, exchange))
        await worker.until(lambda: len(worker.seen) == 1)
        assert loads(dispatch) == [1]
        exchange.interrupt(ClientGone())
        with pytest.raises(ClientGone):
            await task
        assert loads(dispatch) == [0]
        await worker.until(lambda: worker.open == 0)
    assert legs.changes() == {"total": 1, "completed": 1, "error": 1}


async def test_a_client_that_leaves_in_mid_stream_stops_the_worker() -> None:
    """Also while the worker is silent."""
    legs = Counters(GENERATION)
    async with scripted(stream_and_hang) as worker, running(single(worker.url)) as dispatch:
        exchange, reply = await open_stream(dispatch)
        begun = asyncio.Event()

        def note(chunk: bytes) -> bytes:
            begun.set()
            return chunk

        reply.attach(step=note)
        task = asyncio.create_task(read_reply(reply, exchange))
        await begun.wait()
        exchange.interrupt(ClientGone())
        await task
        assert loads(dispatch) == [0]
        await worker.until(lambda: worker.open == 0)
    assert reply.outcome is not None
    assert reply.outcome.name == CLIENT_GONE
    assert legs.changes() == {"total": 1, "completed": 1, "error": 1, "first_token": 1}


async def test_a_stream_that_nobody_reads_stops_the_worker() -> None:
    """A plugin further out may drop the reply; nothing depends on its being iterated."""
    legs = Counters(GENERATION)
    async with scripted(stream_and_hang) as worker, running(single(worker.url)) as dispatch:
        exchange, reply = await open_stream(dispatch)
        await exchange.release()
        assert loads(dispatch) == [0]
        await worker.until(lambda: worker.open == 0)
    assert reply.outcome is not None
    assert reply.outcome.name == NEVER_BEGUN
    assert legs.changes() == {"total": 1, "completed": 1, "error": 1, "first_token": 1}


async def test_a_cancelled_request_stops_the_worker() -> None:
    """Whatever cancels the task: a shutdown, a deadline, a server that gives up."""
    async with scripted(hang) as worker, running(single(worker.url)) as dispatch:
        task = asyncio.create_task(ask(dispatch, exchange_of(body_of())))
        await worker.until(lambda: len(worker.seen) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert loads(dispatch) == [0]
        await worker.until(lambda: worker.open == 0)


async def test_a_request_cancelled_at_any_moment_leaves_nothing() -> None:
    """Cancelled after each number of turns of the loop, until it is finished before."""
    async with scripted(stream) as worker, running(single(worker.url)) as dispatch:
        for turns in range(1000):
            task = asyncio.create_task(ask(dispatch, exchange_of(body_of(stream=True))))
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.done():
                break
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert loads(dispatch) == [0]
        assert task.done()
        assert turns > 5
        await worker.until(lambda: worker.open <= 1)


async def test_a_handoff_that_no_body_can_be_made_for_leaves_nothing_reserved() -> None:
    """An engine that cannot, cannot for a request either that only fetches what nobody came for."""

    class Incapable(VllmEngine):
        def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
            if role is Role.GENERATION:
                raise Rejection(500, "no")
            return super().body(role, request, handoff)

    async with fleet_of(Incapable(), {}) as workers:
        assert (await workers.ask()).error.message == "no"
        assert loads(workers.dispatch) == [0, 0, 0, 0]
