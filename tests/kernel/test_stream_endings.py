"""How a stream ends: by itself, by a fault, an interruption, a hang-up, a cancellation."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kernel import CLIENT_GONE, FAILED, ClientGone, Exchange, Outcome, Rejection, StreamReply
from kernel.testing import Written, build_exchange, read_reply, stream_of
from tests.kernel.support import turn

pytestmark = pytest.mark.anyio


async def write(reply: StreamReply, exchange: Exchange | None = None) -> Written:
    """Write a stream to a client that reads everything."""
    return await read_reply(reply, exchange or build_exchange())


async def endless() -> AsyncIterator[bytes]:
    """Chunks without an end."""
    while True:
        await asyncio.sleep(0)
        yield b"x"


async def test_a_broken_source_is_closed_by_the_links() -> None:
    """The client gets what came, the closing bytes, and a proper end."""
    error, heard = ValueError("broken"), list[Outcome]()
    reply = StreamReply(stream_of(b"a", error))
    reply.attach(close=lambda outcome: f"[{outcome.name}: {outcome.error}]".encode(), end=heard.append)
    reply.claim("maker", fail_open=False)
    written = await write(reply)
    assert written.body == b"a[failed: broken]"
    assert written.ended
    assert [(outcome.error, outcome.plugin) for outcome in heard] == [(error, "maker")]


async def test_a_broken_source_that_nothing_closes_is_cut() -> None:
    """No end is sent, so that the client cannot take it for whole."""
    reply = StreamReply(stream_of(b"a", ValueError("broken")))
    reply.attach(step=bytes.upper, check=lambda: None, end=lambda _: None)
    written = await write(reply)
    assert (written.chunks, written.ended) == ([b"A"], False)


async def test_an_interrupted_stream_is_closed_with_the_reason() -> None:
    """As when the server shuts down."""
    exchange, reason = build_exchange(), Rejection(503, "shutting down")
    reply = StreamReply(endless())
    reply.attach(close=lambda outcome: str(outcome.error).encode())
    task = asyncio.create_task(write(reply, exchange))
    await turn()
    exchange.interrupt(reason)
    written = await task
    assert written.chunks[-1] == b"shutting down"
    assert written.ended
    assert written.outcome is not None
    assert written.outcome.error is reason


async def test_a_stream_whose_client_left_gets_no_closing_bytes() -> None:
    """There is no one to read them; the links hear who left."""
    exchange, heard = build_exchange(), list[Outcome]()
    reply = StreamReply(endless())
    reply.attach(close=lambda _: pytest.fail("closed"), end=heard.append)
    task = asyncio.create_task(write(reply, exchange))
    await turn()
    exchange.interrupt(ClientGone("gone"))
    written = await task
    assert not written.ended
    assert [outcome.name for outcome in heard] == [CLIENT_GONE]
    assert isinstance(heard[0].error, ClientGone)


async def test_a_client_that_left_before_the_first_byte_gets_nothing() -> None:
    """Not even a status."""
    exchange, heard = build_exchange(), list[Outcome]()
    exchange.interrupt(ClientGone("gone"))
    reply = StreamReply(stream_of(b"a"))
    reply.attach(end=heard.append)
    written = await write(reply, exchange)
    assert written.chunks == []
    assert [outcome.name for outcome in heard] == [CLIENT_GONE]


async def test_a_cancelled_stream_ends_with_the_cancellation() -> None:
    """It is not swallowed, and the links hear of a failure."""
    heard: list[Outcome] = []
    reply = StreamReply(endless())
    reply.attach(end=heard.append)
    task = asyncio.create_task(write(reply))
    await turn()
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert [outcome.name for outcome in heard] == [FAILED]
    assert isinstance(heard[0].error, asyncio.CancelledError)


async def test_a_source_that_notices_the_hang_up_itself_ends_the_same_way() -> None:
    """ClientGone is no failure of the source."""
    heard: list[Outcome] = []
    reply = StreamReply(stream_of(b"a", ClientGone("gone")))
    reply.attach(end=heard.append, close=lambda _: pytest.fail("closed"))
    assert not (await write(reply)).ended
    assert [outcome.name for outcome in heard] == [CLIENT_GONE]
