"""Requests that follow each other on one connection, over real sockets."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kernel import (
    BytesReply,
    CallNext,
    Exchange,
    Reply,
    StreamReply,
    race,
)
from plugins.host.protocol import KernelProtocol
from tests.kernel.scene import Scene, begin
from tests.kernel.support import Client, Shelf, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def watch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to watch without delay."""
    monkeypatch.setattr(race, "WATCH_DELAY_SECONDS", 0)


async def test_a_client_that_stays_is_not_taken_for_gone(shelf: Shelf) -> None:
    """Requests that follow on the connection, pipelined ones too, are no hang-up."""
    gates = [asyncio.Event() for _ in range(3)]
    scene = Scene()

    async def in_turn(exchange: Exchange, _call_next: CallNext) -> Reply:
        number = scene.begun - 1
        with exchange.interruptible():
            exchange.watch()
            await gates[number].wait()
        return BytesReply(exchange.id.encode())

    async with scene.play(shelf, in_turn) as port, Client.connect(port) as client:
        for number in range(3):
            client.post("/test", b"x", f"x-request-id: {number}")
        for number, gate in enumerate(gates):
            expected = number + 1
            await until(lambda: scene.begun == expected)  # noqa: B023
            gate.set()
            assert await client.read_sized() == (200, str(number).encode())
    assert scene.errors == []


async def test_pipelined_requests_are_answered_in_order(shelf: Shelf) -> None:
    """Streams and whole answers, each after the other."""

    async def either(exchange: Exchange, _call_next: CallNext) -> Reply:
        async def source() -> AsyncIterator[bytes]:
            yield exchange.id.encode()

        return StreamReply(source()) if exchange.id in "024" else BytesReply(exchange.id.encode())

    scene = Scene()
    async with scene.play(shelf, either) as port, Client.connect(port) as client:
        for number in range(5):
            client.post("/test", b"x", f"x-request-id: {number}")
        for number in range(5):
            if number % 2:
                assert await client.read_sized() == (200, b"%d" % number)
            else:
                assert await client.read_head() == 200
                assert await client.reader.readuntil(b"0\r\n\r\n") == b"1\r\n%d\r\n0\r\n\r\n" % number
    assert [outcome.name for outcome in scene.outcomes] == ["completed"] * 3


async def test_a_client_that_leaves_with_requests_in_the_pipeline_leaves_nothing(shelf: Shelf) -> None:
    """Those that had not begun do not begin, or end at once; uvicorn's own protocol tells only the last one."""
    scene = Scene()
    async with scene.play(shelf, begin, http=KernelProtocol) as port:
        async with Client.connect(port) as client:
            for _ in range(5):
                client.post(body=b"x")
            await client.read_head()
        await until(lambda: scene.outcomes)
    assert {outcome.name for outcome in scene.outcomes} == {"client_gone"}
