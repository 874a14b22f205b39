"""Connections that are kept: which are used again, and which are not."""

import asyncio

import pytest

from plugins.dispatch.client import Client
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, lean_only, sized
from tests.dispatch.transports.peer import Peer, says, worker

pytestmark = pytest.mark.anyio

GOOD = sized(b"good")


async def test_requests_one_after_the_other_share_a_connection(client: Client) -> None:
    """As long as the worker keeps it."""
    async with worker(says(GOOD)) as server:
        for _ in range(10):
            assert (await fetch(client, call(server.url))).whole == (200, b"good")
        assert server.connections == 1


async def test_requests_at_the_same_time_have_a_connection_each(client: Client) -> None:
    """There is no limit to their number."""
    waiting, everybody = 0, asyncio.Event()

    async def together(peer: Peer) -> None:
        nonlocal waiting
        while True:
            await peer.request()
            waiting += 1
            if waiting == 200:
                everybody.set()
            await everybody.wait()
            await peer.send(GOOD)

    async with worker(together) as server:
        got = await asyncio.gather(*(fetch(client, call(server.url)) for _ in range(200)))
        assert {one.whole for one in got} == {(200, b"good")}
        assert server.connections == 200
        await asyncio.gather(*(fetch(client, call(server.url)) for _ in range(200)))
        assert server.connections == 200


@lean_only  # aiohttp takes the one that was idle for the longest time
async def test_the_connection_that_was_used_last_is_used_next(client: Client) -> None:
    """The others get old, and are closed when the load is gone."""
    numbers: list[int] = []
    go = asyncio.Event()

    async def slowly(peer: Peer) -> None:
        while True:
            await peer.request()
            numbers.append(peer.number)
            await go.wait()
            await peer.send(GOOD)

    async with worker(slowly) as server:
        both = [asyncio.ensure_future(fetch(client, call(server.url))) for _ in range(3)]
        await server.until(lambda: server.open == 3)
        go.set()
        await asyncio.gather(*both)
        for _ in range(5):
            await fetch(client, call(server.url))
    assert len(set(numbers[3:])) == 1


@pytest.mark.parametrize(
    "raw",
    [
        sized(b"good", b"connection: close"),
        sized(b"good", b"Connection: Keep-Alive, CLOSE"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\ngood",
        OK + b"connection: close\r\n" + CHUNKED + framed(b"good"),
    ],
)
async def test_a_worker_may_want_its_connection_closed(client: Client, raw: bytes) -> None:
    """It says so, or speaks HTTP/1.0."""
    async with worker(says(raw)) as server:
        for count in (1, 2):
            assert (await fetch(client, call(server.url))).whole == (200, b"good")
            assert server.connections == count
            await server.until_left()


async def test_an_old_worker_may_keep_its_connection(client: Client) -> None:
    """HTTP/1.0 with a word for it."""
    raw = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 4\r\n\r\ngood"
    async with worker(says(raw)) as server:
        for _ in range(3):
            assert (await fetch(client, call(server.url))).whole == (200, b"good")
        assert server.connections == 1


async def test_a_fresh_connection_is_new_and_not_kept(client: Client) -> None:
    """Whatever is kept may be as stale as what failed; and a probe wants to know whether a new one is accepted."""
    async with worker(says(GOOD)) as server:
        await fetch(client, call(server.url))
        for count in (2, 3):
            assert (await fetch(client, call(server.url), fresh=True)).whole == (200, b"good")
            assert server.connections == count
            await server.until(lambda: server.open == 1)
        await fetch(client, call(server.url))
        assert server.connections == 3


@pytest.mark.parametrize("raw", [sized(b"good" * 100_000), OK + CHUNKED + b"4\r\ngood\r\n"])
async def test_an_answer_that_was_not_read_to_its_end_closes_its_connection(client: Client, raw: bytes) -> None:
    """The rest of it must not be taken for the next answer, and its worker shall stop."""
    half = raw if len(raw) < 1000 else raw[:-1]
    async with worker(says(half)) as server:
        response = await client.send(call(server.url))
        assert await response.chunk()
        response.close()
        await server.until_left()
        assert server.connections == 1


async def test_an_answer_that_came_whole_may_be_closed_unread(client: Client) -> None:
    """Nothing of it can get into the next one."""
    async with worker(says(GOOD)) as server:
        for _ in range(3):
            response = await client.send(call(server.url))
            response.close()
        assert (await fetch(client, call(server.url))).whole == (200, b"good")


@lean_only  # aiohttp keeps it
@pytest.mark.parametrize("field", [b"content-length: 4", b"transfer-encoding: chunked"])
async def test_an_answer_that_has_no_body_but_speaks_of_one_is_the_last(client: Client, field: bytes) -> None:
    """It may come after all, and would be taken for the beginning of the next answer."""
    async with worker(says(b"HTTP/1.1 204 No Content\r\n" + field + b"\r\n\r\n")) as server:
        assert (await fetch(client, call(server.url))).whole == (204, b"")
        await server.until_left()
