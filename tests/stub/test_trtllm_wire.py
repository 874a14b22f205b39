"""The two wire formats of a TensorRT-LLM worker's bodies."""

from typing import Any

import aiohttp
import orjson
import ormsgpack
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.support import CHAT, PATHS, texts

pytestmark = pytest.mark.anyio


async def send(client: aiohttp.ClientSession, stub: Stub, raw: bytes, **headers: str) -> tuple[int, Any]:
    """Send raw bytes as a chat."""
    sent = {"Content-Type": "application/json", **headers}
    async with client.post(stub.url + PATHS["chat"], data=raw, headers=sent) as response:
        return response.status, orjson.loads(await response.read())


MSGPACK = {"X-TRTLLM-Msgpack": "1"}


async def test_msgpack_is_decoded_when_announced(client: aiohttp.ClientSession, aggregated: Stub) -> None:
    """The header makes the body msgpack, with the same answer as JSON; the record says which it was."""
    status, answer = await send(client, aggregated, ormsgpack.packb(CHAT), **MSGPACK)
    _status, expected = await send(client, aggregated, orjson.dumps(CHAT))
    assert (status, texts(answer)) == (200, texts(expected))
    first, second = aggregated.state().last_requests
    assert (first.wire, second.wire) == ("msgpack", "json")
    assert first.body == second.body == CHAT


@pytest.mark.parametrize("raw", [b"\xc1", b"\xff\xff", orjson.dumps(CHAT), b"\x91" * 5_000])
async def test_malformed_msgpack_is_422(client: aiohttp.ClientSession, aggregated: Stub, raw: bytes) -> None:
    """Bytes that are not msgpack are 422 with a detail, JSON among them."""
    status, answer = await send(client, aggregated, raw, **MSGPACK)
    assert (status, answer.keys()) == (422, {"detail"})


@pytest.mark.parametrize("headers", [{}, MSGPACK])
async def test_an_empty_body_is_an_empty_object(
    client: aiohttp.ClientSession, aggregated: Stub, headers: dict[str, str]
) -> None:
    """No body at all is an object in which the required fields are missing."""
    status, answer = await send(client, aggregated, b"", **headers)
    assert status == 400
    assert "missing" in answer["error"]
    assert "messages" in answer["error"]


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b"null", b"\xff", ormsgpack.packb(CHAT), b"[" * 5_000, b'{"model": "\\ud800"}']
)
async def test_malformed_json_is_400(client: aiohttp.ClientSession, aggregated: Stub, raw: bytes) -> None:
    """Bytes that are not a JSON object are 400, msgpack without its header among them."""
    status, answer = await send(client, aggregated, raw)
    assert (status, answer.keys()) == (400, {"error"})


async def test_json_needs_its_content_type(client: aiohttp.ClientSession, aggregated: Stub) -> None:
    """A body of another content type is not decoded, which is 400."""
    status, _answer = await send(client, aggregated, orjson.dumps(CHAT), **{"Content-Type": "text/plain"})
    assert status == 400


async def test_a_worker_may_want_msgpack_only(client: aiohttp.ClientSession) -> None:
    """With require_msgpack a JSON body is 400 and a msgpack body is served."""
    async with run_stub("trtllm", require_msgpack=True) as stub:
        assert (await send(client, stub, orjson.dumps(CHAT)))[0] == 400
        assert (await send(client, stub, ormsgpack.packb(CHAT), **MSGPACK))[0] == 200
