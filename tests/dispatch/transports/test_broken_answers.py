"""Answers that break off: never whole, never sent again, and nothing that came before is lost."""

import asyncio

import pytest

from plugins.dispatch.client import Client, ConnectFault, StaleFault, TransportFault
from tests.dispatch.scripted import keep_port
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, lean_only, read, sized
from tests.dispatch.transports.peer import Peer, says, worker

pytestmark = pytest.mark.anyio

CUT = {
    "length": sized(b'{"ok":true}', b"content-type: application/json"),
    "chunked": OK + CHUNKED + framed(b"data: 1\n\n", b"x", b"data: [DONE]\n\n"),
    "trailers": OK + CHUNKED + b"3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n",
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"abc"),
}


def begun(raw: bytes) -> bytes:
    """The content of a cut answer."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        return begun(rest)
    if b"chunked" not in head:
        return rest
    content = b""
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        if not int(size, 16):
            break
        content, rest = content + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return content


@pytest.mark.parametrize("ending", ["close", "reset", "half-close"])
@pytest.mark.parametrize("name", CUT)
async def test_an_answer_that_breaks_off_is_a_fault(client: Client, transport: str, name: str, ending: str) -> None:
    """Wherever it does, down to its last byte; what came before that is delivered, by lean all of it.

    aiohttp drops what is in its buffer when a connection breaks.
    """
    raw = CUT[name]
    for place in range(len(raw)):

        async def break_off(peer: Peer, place: int = place) -> None:
            await peer.request()
            await peer.send(raw[:place])
            if ending == "half-close":
                peer.end()
                await peer.gone()
            elif ending == "reset":
                peer.reset()

        async with worker(break_off) as server:
            got = await fetch(client, call(server.url))
            await server.until_left()
            assert server.connections == 1
        assert type(got.fault) is TransportFault, (place, got.fault)
        content = begun(raw[:place])
        assert got.body == content if transport == "lean" else content.startswith(got.body), place


@lean_only  # aiohttp takes every end for the end of the answer
async def test_an_answer_without_a_length_that_is_reset_is_a_fault(client: Client) -> None:
    """It has not come to its end."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + b"\r\nabc")
        peer.reset()

    async with worker(script) as server:
        got = await fetch(client, call(server.url))
        assert type(got.fault) is TransportFault
        assert got.body in (b"abc", b"")


async def test_what_came_before_a_break_can_be_taken_after_it(client: Client, transport: str) -> None:
    """Also if nobody waited for it when the connection broke; aiohttp loses it."""

    async def break_off(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + CHUNKED + b"3\r\nabc\r\n3\r\nde")

    async with worker(break_off) as server:
        response = await client.send(call(server.url))
        await server.until_left()
        for _ in range(5):
            await asyncio.sleep(0)
        if transport == "lean":
            assert await response.chunk() == b"abcde"
        for _ in range(2):
            with pytest.raises(TransportFault):
                await response.chunk()
        response.close()


async def test_a_worker_that_hangs_up_at_once_was_not_stale(client: Client) -> None:
    """On a new connection: it may have read the request, and died of it."""
    async with worker(says(keep=False)) as server:
        fault = (await fetch(client, call(server.url))).fault
    assert type(fault) is TransportFault
    assert not isinstance(fault, StaleFault)


async def test_a_worker_that_is_not_there_was_sent_nothing(client: Client) -> None:
    """Its port refuses."""
    with keep_port() as port:
        fault = (await fetch(client, call("http://{}:{}".format(*port.getsockname())))).fault
    assert type(fault) is ConnectFault
    assert "127.0.0.1" not in fault.message


async def test_a_name_that_leads_nowhere_was_sent_nothing(client: Client) -> None:
    """One that no resolver needs to be asked for."""
    fault = (await fetch(client, call(f"http://{'x' * 64}:8000/"))).fault
    assert type(fault) is ConnectFault


async def test_a_closed_answer_is_at_its_end_or_broken(client: Client) -> None:
    """Whoever closed it gets no more of it."""
    async with worker(says(OK + CHUNKED + b"3\r\nabc\r\n")) as server:
        response = await client.send(call(server.url))
        response.close()
        response.close()
        assert type((await read(response)).fault) is TransportFault
        await server.until_left()
