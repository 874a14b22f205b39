"""Clients that leave, over real sockets: the work stops, and nothing of it is left."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kernel import (
    BytesReply,
    CallNext,
    ClientGone,
    Exchange,
    Reply,
    StreamReply,
    race,
)
from tests.kernel.scene import Scene, begin
from tests.kernel.support import Client, Shelf, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def watch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to watch without delay."""
    monkeypatch.setattr(race, "WATCH_DELAY_SECONDS", 0)


async def wait_watched(exchange: Exchange, _call_next: CallNext) -> Reply:
    """Wait for ever, under a watch."""
    with exchange.interruptible():
        exchange.watch()
        await asyncio.Event().wait()
    raise AssertionError


async def flood(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """A stream without an end."""

    async def source() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)
            yield b"more"

    return StreamReply(source())


async def answer(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """Answer at once."""
    return BytesReply(b"answer")


async def test_a_hang_up_during_the_chain_stops_the_work(shelf: Shelf) -> None:
    """Plugins outside the guarded one see ClientGone."""
    scene = Scene()
    async with scene.play(shelf, wait_watched) as port:
        async with Client.connect(port) as client:
            client.post(body=b"x")
            await until(lambda: scene.begun)
        await until(lambda: scene.errors)
    assert [type(error) for error in scene.errors] == [ClientGone]


@pytest.mark.parametrize("stream", [begin, flood])
@pytest.mark.parametrize("path", ["/test", "/unread"])
async def test_a_hang_up_in_mid_stream_ends_the_stream(shelf: Shelf, stream: Any, path: str) -> None:
    """Whether its source waits or goes on, and whether the request's body was read or not."""
    scene = Scene()
    async with scene.play(shelf, stream) as port:
        async with Client.connect(port) as client:
            client.post(path, b"x")
            assert await client.read_head() == 200
        await until(lambda: scene.outcomes)
    assert [outcome.name for outcome in scene.outcomes] == ["client_gone"]


async def test_a_reset_is_a_hang_up(shelf: Shelf) -> None:
    """Not every client says goodbye."""
    scene = Scene()
    async with scene.play(shelf, begin) as port:
        async with Client.connect(port) as client:
            client.post(body=b"x")
            await client.read_head()
            connection: socket.socket = client.writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
        await until(lambda: scene.outcomes)
    assert [outcome.name for outcome in scene.outcomes] == ["client_gone"]


async def test_a_hang_up_in_the_middle_of_a_body_ends_the_reading(shelf: Shelf) -> None:
    """The chain goes no further."""
    scene = Scene()
    async with scene.play(shelf, answer) as port:
        async with Client.connect(port) as client:
            client.writer.write(b"POST /test HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\nhalf")
            await until(lambda: scene.begun)
        await until(lambda: scene.errors)
    assert [type(error) for error in scene.errors] == [ClientGone]
