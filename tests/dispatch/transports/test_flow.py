"""Both directions at the speed of the slower side: a slow reader, and a worker that reads slowly."""

import asyncio

import pytest

from plugins.dispatch.client import Client
from plugins.dispatch.transports.lean import LeanClient
from plugins.dispatch.transports.lean.connection import PIECE
from tests.dispatch.transports.exchange import CHUNKED, OK, call, turns
from tests.dispatch.transports.peer import Peer, worker

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
SIZE = 64 * MEGABYTE

BOUND = 16 * MEGABYTE
"""What two sockets and a client may hold."""


class Flood:
    """Answers with `SIZE` bytes of a body as fast as they are taken, and counts them."""

    def __init__(self, *, chunked: bool) -> None:
        self.chunked = chunked
        self.sent = 0

    async def __call__(self, peer: Peer) -> None:
        """Answer once."""
        await peer.request()
        piece = bytes(range(256)) * 256
        await peer.send(OK + (CHUNKED if self.chunked else b"content-length: %d\r\n\r\n" % SIZE))
        while self.sent < SIZE and not peer.writer.is_closing():
            peer.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self.chunked else piece)
            await peer.writer.drain()
            self.sent += len(piece)
        if self.chunked:
            await peer.send(b"0\r\n\r\n")


async def settled(flood: Flood) -> int:
    """What was sent when no more can be."""
    before = -1
    async with asyncio.timeout(10):
        while before != flood.sent:
            before = flood.sent
            await turns(100)
    return before


@pytest.mark.parametrize("chunked", [True, False])
async def test_an_answer_that_nobody_reads_is_held_back(client: Client, chunked: bool) -> None:
    """The worker has to wait; then all of it comes, whole and in order."""
    flood = Flood(chunked=chunked)
    async with worker(flood) as server:
        response = await client.send(call(server.url))
        assert await settled(flood) < BOUND
        largest = size = 0
        while chunk := await response.chunk():
            assert chunk[0] == size % 256
            size += len(chunk)
            largest = max(largest, len(chunk))
        response.close()
    assert size == SIZE
    assert largest < 2 * MEGABYTE


async def test_an_answer_that_is_held_back_can_be_closed(client: Client) -> None:
    """The worker hears of it."""
    async with worker(Flood(chunked=True)) as server:
        response = await client.send(call(server.url))
        await settled(server.script)  # type: ignore[arg-type]
        response.close()
        await server.until_left()


async def test_what_came_together_is_given_together(client: Client) -> None:
    """Many small chunks cost one call."""
    together = b"".join(b"3\r\nabc\r\n" for _ in range(1000))

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + CHUNKED)
        await go.wait()
        await peer.send(together, b"0\r\n\r\n")

    go = asyncio.Event()
    calls = 0
    async with worker(script) as server:
        response = await client.send(call(server.url))
        go.set()
        while await response.chunk():
            calls += 1
        response.close()
    assert calls < 10


async def test_a_request_that_is_not_read_is_held_back(client: Client) -> None:
    """Its body is not copied as a whole; and it ends when whoever asked leaves."""

    async def script(peer: Peer) -> None:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await forever.wait()

    forever = asyncio.Event()
    async with worker(script) as server:
        task = asyncio.ensure_future(client.send(call(server.url, body=b"x" * SIZE)))
        await server.until(lambda: server.open == 1)
        await turns(100)
        if isinstance(client, LeanClient):
            (pool,) = client._pools.values()
            (connection,) = pool._open
            assert 0 < connection._transport.get_write_buffer_size() <= 2 * PIECE
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        forever.set()
        await server.until_left()
