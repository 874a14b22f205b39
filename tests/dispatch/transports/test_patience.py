"""How long an answer may take, on a clock that is moved by hand."""

import asyncio
from collections.abc import Callable

import pytest

from plugins.dispatch.client import Client, Limits, Response, TimeoutFault
from tests.dispatch.transports.clock import Clock
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, lean_only, on_asyncio, sized, turns
from tests.dispatch.transports.peer import Peer, Script, worker

pytestmark = [pytest.mark.anyio, on_asyncio]

READ = 60.0
LIMITS = [Limits(10.0, read=READ), Limits(10.0, total=READ), Limits(10.0, read=READ, total=100 * READ)]


async def late(clock: Clock, response: Response, seconds: float = 2 * READ) -> bytes:
    """What a wait ends with during which so much time goes by."""
    waiting = asyncio.ensure_future(response.chunk())
    await turns(3)
    clock.move(seconds)
    return await waiting


def step_by_step(*parts: bytes) -> tuple[Script, Callable[[], None]]:
    """A script that sends one part after the other, and what lets it send the next one."""
    steps: asyncio.Queue[None] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(parts[0])
        for part in parts[1:]:
            await steps.get()
            await peer.send(part)
        await peer.gone()

    return script, lambda: steps.put_nowait(None)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("raw", [OK + CHUNKED + b"3\r\nabc\r\n", OK + b"content-length: 4\r\n\r\nabc", OK + b"\r\nabc"])
async def test_a_body_that_does_not_go_on_in_time_is_a_timeout(
    client: Client, clock: Clock, limits: Limits, raw: bytes
) -> None:
    """What came before is delivered."""
    script, _ = step_by_step(raw)
    async with worker(script) as server:
        response = await client.send(call(server.url, limits=limits))
        assert await response.chunk() == b"abc"
        with pytest.raises(TimeoutFault):
            await late(clock, response)
        response.close()
        await server.until_left()


async def test_a_kept_connection_has_the_limits_of_each_request(client: Client, clock: Clock) -> None:
    """A short one after a long one, and a long one after a short one."""

    async def script(peer: Peer) -> None:
        for _ in range(3):
            await peer.request()
            await peer.send(sized(b"good"))
        await peer.request()
        await peer.send(OK + CHUNKED)
        await peer.gone()

    async with worker(script) as server:
        for limits in (Limits(10.0, total=50 * READ), Limits(10.0, read=READ), Limits(10.0, total=50 * READ)):
            assert (await fetch(client, call(server.url, limits=limits))).whole == (200, b"good")
            clock.move(10.0)
        response = await client.send(call(server.url, limits=LIMITS[0]))
        with pytest.raises(TimeoutFault):
            await late(clock, response)
        response.close()
        assert server.connections == 1


async def test_a_stream_that_goes_on_has_no_end(client: Client, clock: Clock) -> None:
    """The time between two reads begins anew with each; a limit that went by in the meantime means nothing."""
    script, step = step_by_step(OK + CHUNKED, *[b"1\r\nx\r\n"] * 12, b"0\r\n\r\n")
    async with worker(script) as server:
        response = await client.send(call(server.url, limits=LIMITS[0]))
        for expected in (*[b"x"] * 12, b""):
            asyncio.get_running_loop().call_later(0.9 * READ, step)
            assert await late(clock, response, 0.9 * READ) == expected
        response.close()


async def test_no_time_counts_while_nobody_waits(client: Client, clock: Clock) -> None:
    """A slow reader is not the worker's fault."""
    script, _ = step_by_step(OK + CHUNKED + framed(b"abc"))
    async with worker(script) as server:
        response = await client.send(call(server.url, limits=LIMITS[0]))
        clock.move(2 * READ)
        await turns(3)
        assert await response.chunk() == b"abc"
        assert await response.chunk() == b""
        response.close()


@lean_only  # aiohttp counts the worker's silence whether or not somebody waits
async def test_a_slow_reader_of_a_stream_that_goes_on_is_not_late(client: Client, clock: Clock) -> None:
    """The wait begins with the call."""
    script, step = step_by_step(OK + CHUNKED + b"3\r\nabc\r\n", framed(b"def"))
    async with worker(script) as server:
        response = await client.send(call(server.url, limits=LIMITS[0]))
        assert await response.chunk() == b"abc"
        clock.move(2 * READ)
        await turns(3)
        step()
        assert await response.chunk() == b"def"
        assert await response.chunk() == b""
        response.close()


@lean_only  # aiohttp says it to whoever reads on, and closes only then
@pytest.mark.parametrize("limits", LIMITS[1:])
async def test_the_time_in_all_counts_while_nobody_waits(client: Client, clock: Clock, limits: Limits) -> None:
    """It is over for the worker, too, at once; what came before is delivered."""
    script, _ = step_by_step(OK + CHUNKED + b"3\r\nabc\r\n")
    async with worker(script) as server:
        response = await client.send(call(server.url, limits=limits))
        clock.move(2 * READ)
        await turns(3)
        clock.move(200 * READ)
        await server.until_left()
        assert await response.chunk() == b"abc"
        with pytest.raises(TimeoutFault):
            await response.chunk()
        response.close()


@lean_only  # aiohttp counts from the last thing that came in
async def test_a_worker_that_reads_slowly_is_not_silent(client: Client, clock: Clock) -> None:
    """As long as something of a request goes out, the time until the next read begins anew."""
    size = 64 * 1024 * 1024

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        for _ in range(4):
            await turns(3)
            clock.move(0.6 * READ)
            await peer.reader.readexactly(size // 4)  # more than the system holds on the way
        await peer.send(sized(b"got it"))

    async with worker(script) as server:
        got = await fetch(client, call(server.url, body=b"x" * size, limits=LIMITS[0]))
        assert got.whole == (200, b"got it")
