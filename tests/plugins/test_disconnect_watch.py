"""The promise of `disconnect_watch`: the work for a client that hung up is stopped, and no other."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from attrs import field, frozen

from kernel import BytesReply, CallNext, ClientGone, Exchange, Rejection, Reply
from kernel.testing import run_chain
from plugins.disconnect_watch import DisconnectWatch
from plugins.endpoints import CHAT_COMPLETIONS

pytestmark = pytest.mark.anyio


@frozen(eq=False)
class Work:
    """Work that goes on until it is let go; notes whether it was stopped."""

    begun: asyncio.Event = field(factory=asyncio.Event)
    free: asyncio.Event = field(factory=asyncio.Event)
    stopped: list[str] = field(factory=list)

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Work, then answer."""
        self.begun.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.stopped.append("stopped")
            raise
        return BytesReply(b"{}")


def connect() -> tuple[Exchange, asyncio.Event]:
    """An exchange whose body was read, and the event that its client hangs up by."""
    left = asyncio.Event()
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    return Exchange(CHAT_COMPLETIONS, {"type": "http", "headers": []}, receive), left


async def start(exchange: Exchange, work: Work) -> asyncio.Task[Reply]:
    """The running chain, when the work has begun."""
    await exchange.read(0)
    task = asyncio.ensure_future(run_chain([DisconnectWatch(), work], exchange))
    await work.begun.wait()
    return task


async def test_hang_up_stops_the_work() -> None:
    """When the client hangs up, the work is cancelled at once and the chain hears `ClientGone`."""
    exchange, left = connect()
    work = Work()
    task = await start(exchange, work)

    left.set()
    with pytest.raises(ClientGone):
        await task

    assert work.stopped == ["stopped"]
    await exchange.release()


async def test_work_of_a_client_that_stays_is_finished() -> None:
    """Without a hang-up the work's own reply comes back, and nothing is left behind to watch."""
    before = asyncio.all_tasks()
    exchange, _ = connect()
    work = Work()
    task = await start(exchange, work)

    work.free.set()

    assert isinstance(await task, BytesReply)
    assert work.stopped == []
    await exchange.release()
    assert asyncio.all_tasks() == before


async def test_client_that_left_before_costs_no_work() -> None:
    """A client that is gone already is not worked for."""
    exchange, _ = connect()
    exchange.interrupt(ClientGone("left"))
    work = Work()

    with pytest.raises(ClientGone):
        await run_chain([DisconnectWatch(), work], exchange)

    assert not work.begun.is_set()


async def test_other_interruptions_have_their_own_reason() -> None:
    """A shutdown ends the work with the rejection that it gave."""
    exchange, _ = connect()
    work = Work()
    task = await start(exchange, work)

    exchange.interrupt(Rejection(503, "the server is shutting down"))
    with pytest.raises(Rejection, match="shutting down"):
        await task

    assert work.stopped == ["stopped"]
    await exchange.release()


async def test_cancellation_stays_one() -> None:
    """A cancelled request is not taken for one whose client left."""
    exchange, _ = connect()
    work = Work()
    task = await start(exchange, work)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert work.stopped == ["stopped"]
    await exchange.release()
