"""A caller that gives up: nothing of its attempt is left, at whatever moment."""

import asyncio
import gc
import socket

import pytest

from plugins.dispatch.client import Client
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, lean_only, sized, turns
from tests.dispatch.transports.peer import Peer, says, worker

pytestmark = pytest.mark.anyio

PARTS = (b"HTTP/1.1 200", b" OK\r\n", CHUNKED, b"3\r\nab", b"c\r\n", b"0\r\n\r\n")


@pytest.mark.parametrize("fresh", [True, False])
async def test_an_attempt_cancelled_at_any_moment_leaves_nothing(client: Client, fresh: bool) -> None:
    """After each number of turns of the loop, until it is finished before."""
    async with worker(says(*PARTS)) as server:
        for count in range(1000):
            task = asyncio.ensure_future(fetch(client, call(server.url), fresh=fresh))
            await turns(count)
            if task.done():
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert task.done()
        assert count > 10
        await server.until(lambda: server.open <= (not fresh))


async def test_an_attempt_whose_time_is_over_at_any_moment_leaves_nothing(client: Client) -> None:
    """A deadline further out is a cancellation, too."""
    async with worker(says(*PARTS)) as server:
        for count in range(60):
            try:
                async with asyncio.timeout(count * 0.0002):
                    await fetch(client, call(server.url))
            except TimeoutError:
                pass
        await server.until(lambda: server.open <= 1)


async def test_a_cancelled_wait_closes_the_connection(client: Client, transport: str) -> None:
    """At once with lean; with aiohttp when the answer is closed."""
    async with worker(says(OK + CHUNKED + b"3\r\nabc\r\n")) as server:
        response = await client.send(call(server.url))
        assert await response.chunk() == b"abc"
        task = asyncio.ensure_future(response.chunk())
        await turns(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if transport == "aiohttp":
            response.close()
        await server.until_left()
        response.close()


async def test_a_worker_notices_that_a_silent_answer_was_closed(client: Client) -> None:
    """It does not have to write to learn it."""
    noticed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + CHUNKED)
        await peer.gone()
        noticed.set()

    async with worker(script) as server:
        response = await client.send(call(server.url))
        response.close()
        await asyncio.wait_for(noticed.wait(), 10)


async def test_an_answer_and_a_cancellation_in_the_same_moment_leave_nothing(client: Client) -> None:
    """Whoever comes first."""
    async with worker(says(sized(b"abc"))) as server:
        for count in range(200):
            task = asyncio.ensure_future(fetch(client, call(server.url)))
            timer = asyncio.get_running_loop().call_later(count * 0.00002, task.cancel)
            await asyncio.gather(task, return_exceptions=True)
            timer.cancel()
        assert (await fetch(client, call(server.url))).whole == (200, b"abc")
        await server.until(lambda: server.open <= 1)


async def test_an_attempt_to_connect_can_be_cancelled(client: Client) -> None:
    """While nobody answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        tasks = [asyncio.ensure_future(client.send(call(url))) for _ in range(8)]
        await turns(10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() for task in tasks)


async def test_a_fault_that_nobody_waits_for_is_not_complained_about(client: Client) -> None:
    """The connection breaks while the reader is elsewhere, and the reader never comes back."""
    async with worker(says(OK + CHUNKED + b"3\r\nabc\r\n", keep=False)) as server:
        responses = [await client.send(call(server.url)) for _ in range(3)]
        await server.until_left()
        await turns(5)
        for response in responses:
            response.close()
        del responses, response
    gc.collect()


@lean_only  # aiohttp needs the garbage collector
async def test_a_fault_holds_nothing_together(client: Client) -> None:
    """What failed is gone when it is let go of, without help of the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        async with worker(says(OK + CHUNKED + framed(b"abc")[:-2], keep=False)) as server:
            for _ in range(20):
                assert (await fetch(client, call(server.url))).fault is not None
            await server.until_left()
            for _ in range(20):
                assert (await fetch(client, call("http://127.0.0.1:1"))).fault is not None
            await turns(5)
            names = [type(thing).__name__ for thing in gc.get_objects()]
            for name in ("LeanResponse", "Connection", "Decoder", "TransportFault", "ConnectFault"):
                assert names.count(name) < 3, name
    finally:
        gc.enable()
