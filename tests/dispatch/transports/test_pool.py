"""Lean's idle connections seen from inside: which are kept, and for how long."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from plugins.dispatch.client import ConnectFault
from plugins.dispatch.transports.lean import LeanClient
from plugins.dispatch.transports.lean.client import ORIGINS
from plugins.dispatch.transports.lean.pool import ConnectionPool
from tests.dispatch.scripted import keep_port
from tests.dispatch.transports.clock import Clock
from tests.dispatch.transports.exchange import call, fetch, sized, turns
from tests.dispatch.transports.peer import Peer, Worker, says, worker

pytestmark = pytest.mark.anyio

GOOD = sized(b"good")
KEPT_SECONDS = 60.0


@pytest.fixture
def anyio_backend() -> str:
    """A loop that has a clock."""
    return "asyncio"


@pytest.fixture
async def client() -> AsyncIterator[LeanClient]:
    """A client."""
    client = LeanClient(KEPT_SECONDS)
    yield client
    await client.close()


def pool_of(client: LeanClient) -> ConnectionPool:
    """The only one."""
    (pool,) = client._pools.values()
    return pool


async def fetch_together(client: LeanClient, server: Worker, count: int) -> None:
    """Have that many connections."""
    got = await asyncio.gather(*(fetch(client, call(server.url)) for _ in range(count)))
    assert {one.whole for one in got} == {(200, b"good")}


async def test_each_connection_has_its_own_time(client: LeanClient, clock: Clock) -> None:
    """One timer closes them, when their turn has come."""
    async with worker(says(GOOD)) as server:
        await fetch_together(client, server, 2)
        pool = pool_of(client)
        first, second = pool._idle
        clock.move(KEPT_SECONDS / 2)
        await fetch_together(client, server, 1)
        clock.move(KEPT_SECONDS * 0.6)
        await server.until(lambda: server.open == 1)
        assert list(pool._idle) == [second]
        assert first.is_closing()
        clock.move(KEPT_SECONDS / 2)
        await server.until_left()
        assert (pool._idle, pool._open, pool._timer) == ({}, set(), None)


async def test_a_connection_whose_time_is_over_is_not_used(client: LeanClient, clock: Clock) -> None:
    """Also if the timer is late."""
    async with worker(says(GOOD)) as server:
        await fetch_together(client, server, 2)
        clock.move(2 * KEPT_SECONDS)
        assert (await fetch(client, call(server.url))).whole == (200, b"good")
        assert server.connections == 3
        assert len(pool_of(client)._idle) == 1


async def test_nothing_is_remembered_of_a_connection_that_its_worker_closed(client: LeanClient) -> None:
    """At once, not only when it would be used."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(GOOD)
        await close.wait()

    close = asyncio.Event()
    async with worker(script) as server:
        await fetch_together(client, server, 3)
        assert len(pool_of(client)._idle) == 3
        close.set()
        await server.until_left()
        await turns(5)
        assert (pool_of(client)._idle, pool_of(client)._open) == ({}, set())


async def test_workers_that_are_gone_are_forgotten(client: LeanClient) -> None:
    """Where they come and go for months, each at an address of its own; those with connections stay."""
    async with worker(says(GOOD)) as server:
        await fetch_together(client, server, 1)
        kept = pool_of(client)
        with keep_port() as refusing:
            port = refusing.getsockname()[1]
            for number in range(1, 201):
                with pytest.raises(ConnectFault):
                    await client.send(call(f"http://127.0.0.{number}:{port}"))
        assert len(client._pools) <= ORIGINS
        assert kept in client._pools.values()
        await fetch_together(client, server, 1)
        assert server.connections == 1
