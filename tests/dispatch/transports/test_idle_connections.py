"""Connections that are idle: what comes in on them, their ends, and requests that meet such an end."""

import asyncio
from collections.abc import Callable

import pytest

from plugins.dispatch.client import Client, StaleFault, TransportFault
from plugins.dispatch.transports import aiohttp
from plugins.dispatch.transports.lean import connection as lean
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, lean_only, pair_up, read, sized
from tests.dispatch.transports.peer import Peer, Script, says, worker

pytestmark = pytest.mark.anyio

GOOD = sized(b"good")
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


@lean_only  # aiohttp refuses the answer for some of them, and uses the connection again after others
@pytest.mark.parametrize("garbage", [b"x", b"\r\n", b"\n", GOOD, b"HTTP/1.1 200 OK\r\n", b"0\r\n\r\n"])
@pytest.mark.parametrize("answer", [GOOD, OK + CHUNKED + framed(b"good"), b"HTTP/1.1 204 No Content\r\n\r\n"])
async def test_bytes_behind_an_answer_are_not_the_next_one(client: Client, answer: bytes, garbage: bytes) -> None:
    """The answer itself is good; the connection is not used again."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer + garbage)
        await peer.gone()

    async with worker(script) as server:
        for count in (1, 2):
            got = await fetch(client, call(server.url))
            assert got.whole in ((200, b"good"), (204, b""))
            assert server.connections == count
        await server.until_left()


# aiohttp drops the connection only when it cannot parse them
@pair_up("garbage", [b"x", b"\r\n", GOOD], lean=[b"\r\n", GOOD])
async def test_bytes_on_an_idle_connection_are_not_the_next_answer(client: Client, garbage: bytes) -> None:
    """Nobody asked for them."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(GOOD)
        await idle.wait()
        await peer.send(garbage)
        await peer.gone()

    idle = asyncio.Event()
    async with worker(script) as server:
        assert (await fetch(client, call(server.url))).whole == (200, b"good")
        assert server.open == 1
        idle.set()
        await server.until_left()
        assert (await fetch(client, call(server.url))).whole == (200, b"good")
        assert server.connections == 2


@pytest.mark.parametrize("ending", ["close", "reset", "half-close"])
async def test_a_connection_that_its_worker_closed_while_idle_is_not_used(client: Client, ending: str) -> None:
    """Its end was noticed."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(GOOD)
        await idle.wait()
        if ending == "reset":
            peer.reset()
        elif ending == "half-close":
            peer.end()
            await peer.gone()

    idle = asyncio.Event()
    async with worker(script) as server:
        await fetch(client, call(server.url))
        idle.set()
        await server.until_left()
        for _ in range(3):
            await asyncio.sleep(0)
        assert (await fetch(client, call(server.url))).whole == (200, b"good")


async def test_an_idle_connection_is_closed_when_its_time_is_over(make_client: Callable[[float], Client]) -> None:
    """The kernel closes before the worker does; each one on its own, the rest goes on."""
    client = make_client(0.02)
    async with worker(says(GOOD)) as server:
        await asyncio.gather(*(fetch(client, call(server.url)) for _ in range(5)))
        await server.until_left()
        assert (await fetch(client, call(server.url))).whole == (200, b"good")
        await server.until_left()
    await client.close()


def twice(ending: str, *parts: bytes) -> Script:
    """A script that answers one request well, and the second one with `parts` and an end."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(GOOD)
        await peer.request()
        await peer.send(*parts)
        if ending == "reset":
            peer.reset()

    return script


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_kept_connection_that_breaks_without_a_byte_was_stale(client: Client, ending: str) -> None:
    """Its worker closed it while the request was on its way; it is for the leg to send it again."""
    async with worker(twice(ending)) as server:
        assert (await fetch(client, call(server.url))).whole == (200, b"good")
        assert type((await fetch(client, call(server.url))).fault) is StaleFault
        assert server.connections == 1
        assert (await fetch(client, call(server.url), fresh=True)).whole == (200, b"good")


# aiohttp does not tell of interim answers
@pair_up("part", [b"H", OK, INTERIM], lean=[INTERIM])
async def test_a_kept_connection_that_breaks_after_a_byte_was_not_stale(client: Client, part: bytes) -> None:
    """The worker had read the request."""
    async with worker(twice("close", part)) as server:
        await fetch(client, call(server.url))
        assert type((await fetch(client, call(server.url))).fault) is TransportFault


async def test_a_kept_connection_that_breaks_later_was_not_stale(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker may have died of the request."""
    monkeypatch.setattr(aiohttp, "STALE_SECONDS", 0.0)
    monkeypatch.setattr(lean, "STALE_SECONDS", 0.0)
    async with worker(twice("close")) as server:
        await fetch(client, call(server.url))
        assert type((await fetch(client, call(server.url))).fault) is TransportFault


@lean_only  # aiohttp closes them, but does not tell who waits for an answer
async def test_a_client_that_is_closed_closes_all(make_client: Callable[[float], Client]) -> None:
    """Idle connections, and those in the middle of an answer."""
    client = make_client(60.0)
    async with worker(says(GOOD)) as good, worker(says(OK + CHUNKED + b"1\r\nx\r\n")) as endless:
        await asyncio.gather(*(fetch(client, call(good.url)) for _ in range(5)))
        response = await client.send(call(endless.url))
        assert await response.chunk() == b"x"
        waiting = asyncio.ensure_future(read(response))
        await asyncio.sleep(0)
        await client.close()
        await client.close()
        assert type((await waiting).fault) is TransportFault
        await good.until_left()
        await endless.until_left()
