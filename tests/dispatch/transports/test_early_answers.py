"""Workers that answer before they have read a request, or instead of it."""

import asyncio

import pytest

from plugins.dispatch.client import Client, TransportFault
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, lean_only, read, sized, turns
from tests.dispatch.transports.peer import Peer, worker

pytestmark = pytest.mark.anyio

SIZE = 64 * 1024 * 1024

BOUND = 16 * 1024 * 1024
"""What two sockets and a client may hold."""


@pytest.mark.parametrize("status", [b"200 OK", b"413 Too Large"])
async def test_an_answer_may_come_before_the_request_was_read(client: Client, status: bytes) -> None:
    """It counts; the connection, on which the rest of the request may still lie, is not used again."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(sized(b"enough", status=status))
        await read_it.wait()
        await peer.gone()

    read_it = asyncio.Event()
    async with worker(script) as server:
        for count in (1, 2):
            got = await fetch(client, call(server.url, body=b"x" * 20_000_000))
            assert got.whole == (int(status[:3]), b"enough")
            assert server.connections == count
        read_it.set()
        await server.until_left()


async def test_an_answer_may_stream_while_the_request_is_still_sent(client: Client) -> None:
    """The worker answers what it has read so far; both sides go on."""
    size = 20_000_000

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(OK + CHUNKED)
        left = size
        while left:
            piece = await peer.reader.read(1_000_000)
            left -= len(piece)
            await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await peer.send(b"0\r\n\r\n")

    async with worker(script) as server:
        body = bytes(range(256)) * (size // 256)
        got = await fetch(client, call(server.url, body=body))
        assert len(got.whole[1]) == size
        assert got.body == body


async def test_a_worker_that_refuses_a_large_request_and_closes_is_heard(client: Client) -> None:
    """Its answer is there before its end."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(sized(b"no", b"connection: close", status=b"413 Too Large"))

    async with worker(script) as server:
        for _ in range(20):
            got = await fetch(client, call(server.url, body=b"x" * 4_000_000))
            assert got.whole == (413, b"no")


@lean_only  # aiohttp sends all of it
async def test_a_request_that_was_refused_is_not_sent_on(client: Client) -> None:
    """While the rest of the refusal comes in, the worker is spared the rest of the request."""
    taken = 0

    async def take(peer: Peer) -> None:
        nonlocal taken
        while data := await peer.reader.read(1_000_000):
            taken += len(data)

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 6\r\n\r\nnot")
        reading, before = asyncio.ensure_future(take(peer)), -1
        while before != taken:
            before = taken
            await turns(100)
        await peer.send(b" now")
        await reading

    async with worker(script) as server:
        got = await fetch(client, call(server.url, body=b"x" * SIZE))
        assert got.body == b"not no"
    assert taken < BOUND


async def test_a_worker_that_will_send_nothing_is_not_sent_on_to(client: Client) -> None:
    """It closed its side, and does not read; what is left of the request would never go out."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.end()
        await forever.wait()

    forever = asyncio.Event()
    async with worker(script) as server:
        got = await fetch(client, call(server.url, body=b"x" * SIZE))
        assert type(got.fault) is TransportFault
        forever.set()


async def test_an_early_answer_that_is_cut_is_a_fault(client: Client) -> None:
    """Whatever was still to be sent."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(OK + b"content-length: 10\r\n\r\nabc")

    async with worker(script) as server:
        response = await client.send(call(server.url, body=b"x" * 20_000_000))
        got = await read(response)
        assert got.fault is not None
        response.close()
        await server.until_left()
