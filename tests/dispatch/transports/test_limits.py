"""How long an attempt may take: to connect, between two reads, and in all."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from plugins.dispatch.client import Client, ConnectFault, Limits, TimeoutFault
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, pair_up
from tests.dispatch.transports.peer import Peer, says, worker

pytestmark = pytest.mark.anyio

SHORT = 0.05
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"

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
# aiohttp forgets the time between two reads after an interim answer
@pair_up("raw", [b"", b"HTTP/1.1 2", OK + b"content-length: 3\r\n", INTERIM], lean=[INTERIM])
async def test_a_head_that_does_not_come_in_time_is_a_timeout(client: Client, limits: Limits, raw: bytes) -> None:
    """The connection is closed, so that the worker stops."""
    async with worker(says(raw)) as server:
        assert type((await fetch(client, call(server.url, limits=limits))).fault) is TimeoutFault
        await server.until_left()


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
