"""Each kind of fault on command."""

import asyncio

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.support import CHAT, PATHS, Body, context_body, post

pytestmark = pytest.mark.anyio

STREAM: Body = {**CHAT, "stream": True}


async def read_raw(stub: Stub, body: Body) -> tuple[bytes, BaseException | None]:
    """Send a chat over a bare socket and read until the end or the reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stub.port)
    raw = orjson.dumps(body)
    head = f"POST {PATHS['chat']} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
    got = b""
    error: BaseException | None = None
    try:
        while chunk := await reader.read(65_536):
            got += chunk
    except ConnectionResetError as caught:
        error = caught
    writer.close()
    return got, error


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_die_before_headers_resets_the_connection(plain: Stub, body: Body) -> None:
    """Nothing is answered and the peer sees a reset."""
    plain.add_fault("die_before_headers")
    got, error = await read_raw(plain, body)
    assert (got, type(error)) == (b"", ConnectionResetError)
    assert (await plain.until(lambda state: state.running == 0)).faulted == 1


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_die_after_headers_sends_headers_only(plain: Stub, body: Body) -> None:
    """The headers of a good answer come, then a reset."""
    plain.add_fault("die_after_headers")
    got, error = await read_raw(plain, body)
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert got.endswith(b"\r\n\r\n")
    assert isinstance(error, ConnectionResetError)


@pytest.mark.parametrize("after", [0, 1, 5, 10_000])
async def test_cut_mid_event_stops_inside_an_event(plain: Stub, after: int) -> None:
    """So many events come whole, the next one in part, and the connection ends without the last chunk."""
    plain.add_fault("cut_mid_event", after=after)
    got, error = await read_raw(plain, STREAM)
    body = got.partition(b"\r\n\r\n")[2]
    whole = min(after, 1 + 16 + 1)
    assert body.count(b"data: ") == whole + 1
    assert body.count(b"\n\n") == whole
    assert not body.endswith(b"0\r\n\r\n")
    assert error is None, "a process that dies closes its sockets in the ordinary way"


async def test_cut_mid_event_cuts_a_whole_answer_too(client: aiohttp.ClientSession, plain: Stub) -> None:
    """An answer that is no stream comes by half, against its content length."""
    plain.add_fault("cut_mid_event")
    with pytest.raises(aiohttp.ClientPayloadError):
        await post(client, plain, PATHS["chat"], CHAT)


async def test_end_without_done_ends_cleanly(client: aiohttp.ClientSession, plain: Stub) -> None:
    """All events but the end marker come, and the body ends as it should."""
    plain.add_fault("end_without_done")
    async with client.post(plain.url + PATHS["chat"], json=STREAM) as response:
        raw = await response.read()
    assert raw.count(b"data: ") == 1 + 16 + 1
    assert b"[DONE]" not in raw
    assert plain.state().finished == 1


@pytest.mark.parametrize("engine", ["openai", "trtllm"])
async def test_error_event_comes_in_the_stream(client: aiohttp.ClientSession, engine: str) -> None:
    """After so many events an error in OpenAI's envelope and the end marker."""
    async with run_stub(engine) as stub:
        stub.add_fault("error_event", after=3)
        async with client.post(stub.url + PATHS["chat"], json=STREAM) as response:
            frames = (await response.read()).decode().split("\n\n")
    assert len(frames) == 3 + 1 + 1 + 1
    assert orjson.loads(frames[3].removeprefix("data: "))["error"]["message"]
    assert frames[4:] == ["data: [DONE]", ""]


async def test_wrong_content_type_answers_a_stream_with_json(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A stream request is answered as if it were none."""
    plain.add_fault("wrong_content_type")
    async with client.post(plain.url + PATHS["chat"], json=STREAM) as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert (await response.json())["object"] == "chat.completion"


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_garbage_is_no_json(client: aiohttp.ClientSession, plain: Stub, body: Body) -> None:
    """A 200 that says JSON and is not."""
    plain.add_fault("garbage")
    async with client.post(plain.url + PATHS["chat"], json=body) as response:
        assert (response.status, response.content_type) == (200, "application/json")
        with pytest.raises(ValueError, match="unexpected character"):
            orjson.loads(await response.read())


@pytest.mark.parametrize(
    ("given", "expected"), [(None, None), ({"error": "x"}, {"error": "x"}), ("busy", "busy"), ("", "")]
)
async def test_status_answers_as_told(
    client: aiohttp.ClientSession, plain: Stub, given: object, expected: object
) -> None:
    """A status with its headers, and a body that is the engine's own, JSON, or text."""
    plain.add_fault("status", status=429, body=given, headers={"Retry-After": "3"})
    async with client.post(plain.url + PATHS["chat"], json=CHAT) as response:
        raw = await response.read()
        assert (response.status, response.headers["Retry-After"]) == (429, "3")
    if isinstance(expected, str):
        assert raw == expected.encode()
    else:
        decoded = orjson.loads(raw)
        assert decoded == expected or decoded["error"]["type"] == "RateLimitError"


async def test_slow_waits_before_each_token(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A slow stream has not ended while its first events are there; a break can come on top of it."""
    plain.add_fault("slow", seconds=0.02)
    plain.add_fault("end_without_done")
    async with client.post(plain.url + PATHS["chat"], json={**STREAM, "max_tokens": 4}) as response:
        assert await response.content.readuntil(b"\n\n")
        assert plain.state().running == 1
        assert b"[DONE]" not in await response.read()


async def test_hang_lasts_until_it_is_cleared(client: aiohttp.ClientSession, plain: Stub) -> None:
    """Nothing comes while a request hangs; cleared, it is answered as if nothing had been."""
    plain.add_fault("hang")
    asked = asyncio.ensure_future(post(client, plain, PATHS["chat"], CHAT))
    await plain.until(lambda state: state.running == 1 and not plain.faults)
    assert not asked.done()
    plain.clear_faults()
    assert (await asked)[0] == 200


async def test_hang_ends_with_the_client(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A client that leaves a hanging request is noticed."""
    plain.add_fault("hang")
    asked = asyncio.ensure_future(post(client, plain, PATHS["chat"], CHAT))
    await plain.until(lambda state: state.running == 1)
    asked.cancel()
    state = await plain.until(lambda state: state.running == 0)
    assert (state.aborted, state.finished) == (1, 0)


async def test_no_handoff_leaves_out_the_handoff(client: aiohttp.ClientSession, context: Stub) -> None:
    """A context answer without its handoff, and nothing held for it."""
    context.add_fault("no_handoff")
    status, answer = await post(client, context, PATHS["chat"], context_body(CHAT))
    assert (status, answer["choices"][0]["disaggregated_params"]) == (200, None)
    assert context.state().held_blocks == 0


async def test_exit_in_a_test_is_a_kill(client: aiohttp.ClientSession, plain: Stub) -> None:
    """In a test's own process the worker dies in mid-stream without taking the test with it."""
    plain.add_fault("exit", after=2)
    with pytest.raises(aiohttp.ClientPayloadError):
        async with client.post(plain.url + PATHS["chat"], json=STREAM) as response:
            await response.read()
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(client, plain, PATHS["chat"], CHAT)
    assert plain.state().faulted == 1
