"""Clients that leave, workers that die, and ports that stay."""

import asyncio
import socket

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.support import CHAT, COMPLETION, PATHS, context_body, post

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_is_noticed(stream: bool) -> None:
    """A request whose client is gone is stopped and counted as aborted, in mid-answer too."""
    async with run_stub("openai", token_delay=0.01) as stub, aiohttp.ClientSession() as client:
        body = {**CHAT, "max_tokens": 100_000, "stream": stream}
        if stream:
            async with client.post(stub.url + PATHS["chat"], json=body) as response:
                assert await response.content.readuntil(b"\n\n")
                response.close()
        else:
            asked = asyncio.ensure_future(post(client, stub, PATHS["chat"], body))
            await stub.until(lambda state: state.running == 1)
            asked.cancel()
        state = await stub.until(lambda state: state.running == 0 and state.connections_open == 0)
        assert (state.aborted, state.finished) == (1, 0)
        assert state.last_requests[0].outcome == "aborted"


async def test_a_fast_stream_notices_too(plain: Stub) -> None:
    """A stream without a delay does not run to its end for nobody."""
    async with aiohttp.ClientSession() as client:
        body = {**CHAT, "max_tokens": 100_000, "stream": True}
        async with client.post(plain.url + PATHS["chat"], json=body) as response:
            assert await response.content.readuntil(b"\n\n")
            response.close()
        assert (await plain.until(lambda state: state.running == 0)).aborted == 1


async def test_a_body_that_stops_half_way_is_aborted(plain: Stub) -> None:
    """A client that leaves while it sends its body has made no whole request."""
    _reader, writer = await asyncio.open_connection("127.0.0.1", plain.port)
    head = f"POST {PATHS['chat']} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    await plain.until(lambda state: state.running == 1)
    writer.close()
    assert (await plain.until(lambda state: state.running == 0)).aborted == 1


async def test_a_killed_worker_breaks_what_is_open(client: aiohttp.ClientSession, plain: Stub) -> None:
    """Streams are cut, requests dropped, connections refused; nothing is counted as left by its client."""
    plain.add_fault("slow", seconds=0.01)
    plain.add_fault("hang")
    waiting = asyncio.ensure_future(post(client, plain, PATHS["chat"], CHAT))
    await plain.until(lambda state: state.running == 1 and not plain.faults)
    async with client.post(plain.url + PATHS["chat"], json={**CHAT, "stream": True, "max_tokens": 100_000}) as response:
        assert await response.content.readuntil(b"\n\n")
        plain.kill()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    with pytest.raises(aiohttp.ClientConnectionError):
        await waiting
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(client, plain, PATHS["chat"], CHAT)
    state = await plain.until(lambda state: state.running == 0)
    assert (state.faulted, state.aborted, state.connections_open) == (2, 0, 0)


async def test_a_worker_restarts_on_its_port(client: aiohttp.ClientSession, context: Stub) -> None:
    """After a restart the port is the same, blocks and faults are gone, and the counts go on."""
    port = context.port
    await post(client, context, PATHS["chat"], context_body(CHAT))
    context.add_fault("hang")
    context.kill()
    context.kill()
    assert context.state().held_blocks == 0
    await context.restart()
    assert context.port == port
    assert (await post(client, context, PATHS["chat"], context_body(CHAT)))[0] == 200
    state = context.state()
    assert (state.requests, state.held_blocks, state.leaked_blocks) == (2, 1, 0)


async def test_a_running_worker_can_be_restarted(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A restart alone kills first."""
    await post(client, plain, PATHS["chat"], CHAT)
    await plain.restart()
    assert (await post(client, plain, PATHS["chat"], CHAT))[0] == 200


async def test_a_killed_worker_stays_dead_when_faults_are_cleared(client: aiohttp.ClientSession, plain: Stub) -> None:
    """Only a restart revives a worker."""
    plain.kill()
    plain.clear_faults()
    plain.reset()
    plain.add_fault("refuse", seconds=0.001)
    assert plain._listener._reopening is None
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(client, plain, PATHS["chat"], CHAT)


async def test_the_port_is_kept_while_the_worker_is_down(plain: Stub) -> None:
    """Nobody else gets the port of a killed worker, so that its address stays refused."""
    plain.kill()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", plain.port))


async def test_the_port_is_given_back_at_the_end() -> None:
    """After the block the port is free."""
    async with run_stub("openai") as stub:
        port = stub.port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))


async def test_a_taken_port_is_an_error(plain: Stub) -> None:
    """A worker that cannot have the port that it was given does not start."""
    with pytest.raises(OSError, match="in use"):
        async with run_stub("openai", port=plain.port):
            pass


async def test_a_taken_side_port_is_an_error(plain: Stub) -> None:
    """A worker that cannot have its second port does not start, and gives the first one back."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    with pytest.raises(OSError, match="in use"):
        async with run_stub("sglang", role="prefill", port=port, side_port=plain.port):
            pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


async def test_the_side_port_is_kept(client: aiohttp.ClientSession) -> None:
    """A restart keeps the second port too; while the worker is dead nobody answers there."""
    async with run_stub("sglang", role="prefill") as stub:
        port = stub.side_port
        async with client.get(f"http://127.0.0.1:{port}/health") as response:
            assert response.status == 200
        stub.kill()
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"http://127.0.0.1:{port}/health")
        await stub.restart()
        assert stub.side_port == port
        async with client.get(f"http://127.0.0.1:{port}/health") as response:
            assert response.status == 200


async def test_until_gives_up() -> None:
    """A state that never comes is a timeout, not a hang."""
    async with run_stub("openai") as stub:
        with pytest.raises(TimeoutError):
            await stub.until(lambda state: state.requests == 1, seconds=0.01)


async def test_an_idle_connection_is_closed_in_time() -> None:
    """A connection that is idle for longer than keep_alive is ended by the worker."""
    async with run_stub("openai", keep_alive=0.02) as stub:
        reader, writer = await asyncio.open_connection("127.0.0.1", stub.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_many_at_once_are_all_accounted_for(plain: Stub) -> None:
    """Of two hundred requests of which a third leaves, every one is counted, and nothing stays open."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def ask(number: int) -> None:
            body = {**COMPLETION, "stream": True, "max_tokens": 200}
            async with client.post(plain.url + PATHS["completions"], json=body) as response:
                await response.content.readuntil(b"\n\n")
                if number % 3:
                    await response.read()
                else:
                    response.close()

        await asyncio.gather(*(ask(number) for number in range(200)))
        state = await plain.until(lambda state: state.running == 0)
    assert state.requests == state.finished + state.aborted == 200
    assert state.finished >= 133
    await plain.until(lambda state: state.connections_open == 0)
