"""How long an attempt may take: to connect, between two reads, and in all."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from plugins.dispatch.client import Client, ConnectFault, Limits, TimeoutFault
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, sized
from tests.dispatch.transports.peer import Peer, says, worker

pytestmark = pytest.mark.anyio

SHORT = 0.05

LIMITS = [Limits(10.0, read=SHORT), Limits(10.0, total=SHORT), Limits(10.0, read=SHORT, total=10.0)]


@asynccontextmanager
async def full() -> AsyncIterator[str]:
    """The URL of a worker that accepts no connection, and refuses none."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize("limits", [Limits(SHORT), Limits(SHORT, read=10.0, total=10.0)])
async def test_a_connection_that_is_not_made_in_time_is_none(client: Client, limits: Limits) -> None:
    """Nothing was sent, so that another worker may be asked."""
    async with full() as url:
        assert type((await fetch(client, call(url, limits=limits))).fault) is ConnectFault


async def test_the_time_in_all_counts_while_connecting(client: Client) -> None:
    """When it is over no other worker is to be asked."""
    async with full() as url:
        assert type((await fetch(client, call(url, limits=Limits(10.0, total=SHORT)))).fault) is TimeoutFault


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 2", OK + b"content-length: 3\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_head_that_does_not_come_in_time_is_a_timeout(
    client: Client, transport: str, limits: Limits, raw: bytes
) -> None:
    """The connection is closed, so that the worker stops."""
    if transport == "aiohttp" and b"100" in raw:
        pytest.skip("aiohttp forgets the time between two reads after an interim answer")
    async with worker(says(raw)) as server:
        assert type((await fetch(client, call(server.url, limits=limits))).fault) is TimeoutFault
        await server.until_left()


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("raw", [OK + CHUNKED + b"3\r\nabc\r\n", OK + b"content-length: 4\r\n\r\nabc", OK + b"\r\nabc"])
async def test_a_body_that_does_not_go_on_in_time_is_a_timeout(client: Client, limits: Limits, raw: bytes) -> None:
    """What came before is delivered."""
    async with worker(says(raw)) as server:
        got = await fetch(client, call(server.url, limits=limits))
        assert (got.status, got.body, type(got.fault)) == (200, b"abc", TimeoutFault)
        await server.until_left()


async def test_a_kept_connection_has_the_limits_of_each_request(client: Client) -> None:
    """A short one after a long one, and a long one after a short one."""

    async def script(peer: Peer) -> None:
        for _ in range(3):
            await peer.request()
            await peer.send(sized(b"good"))
        await peer.request()
        await peer.gone()

    async with worker(script) as server:
        for limits in (Limits(10.0, total=60.0), Limits(10.0, read=SHORT), Limits(10.0, total=60.0)):
            assert (await fetch(client, call(server.url, limits=limits))).whole == (200, b"good")
        assert type((await fetch(client, call(server.url, limits=LIMITS[1]))).fault) is TimeoutFault
        assert server.connections == 1


async def test_a_stream_that_goes_on_has_no_end(client: Client) -> None:
    """The time between two reads begins anew with each; a limit that went by in the meantime means nothing."""
    step = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + CHUNKED)
        loop = asyncio.get_running_loop()
        for _ in range(12):
            step.clear()
            loop.call_later(0.1, step.set)
            await step.wait()
            await peer.send(b"1\r\nx\r\n")
        await peer.send(b"0\r\n\r\n")

    async with worker(script) as server:
        got = await fetch(client, call(server.url, limits=Limits(10.0, read=1.0)))
    assert got.whole == (200, b"x" * 12)


async def test_the_time_in_all_ends_a_stream_that_goes_on(client: Client) -> None:
    """However often something comes."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + CHUNKED)
        while not peer.writer.is_closing():
            await peer.send(b"1\r\nx\r\n")

    async with worker(script) as server:
        got = await fetch(client, call(server.url, limits=Limits(10.0, read=10.0, total=0.2)))
        assert type(got.fault) is TimeoutFault
        await server.until_left()


async def test_no_time_counts_while_nobody_waits(client: Client) -> None:
    """A slow reader is not the worker's fault."""
    loop = asyncio.get_running_loop()
    async with worker(says(OK + CHUNKED + framed(b"abc"))) as server:
        response = await client.send(call(server.url, limits=Limits(10.0, read=SHORT)))
        late = loop.create_future()
        loop.call_later(3 * SHORT, late.set_result, None)
        await late
        assert await response.chunk() == b"abc"
        assert await response.chunk() == b""
        response.close()


async def test_a_slow_reader_of_a_stream_that_goes_on_is_not_late(client: Client, transport: str) -> None:
    """The wait begins with the call."""
    if transport == "aiohttp":
        pytest.skip("aiohttp counts the worker's silence whether or not somebody waits")
    loop = asyncio.get_running_loop()
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + CHUNKED + b"3\r\nabc\r\n")
        await go.wait()
        await peer.send(framed(b"def"))

    async with worker(script) as server:
        response = await client.send(call(server.url, limits=Limits(10.0, read=0.3)))
        assert await response.chunk() == b"abc"
        late = loop.create_future()
        loop.call_later(0.6, late.set_result, None)
        await late
        loop.call_soon(go.set)
        assert await response.chunk() == b"def"
        assert await response.chunk() == b""
        response.close()
