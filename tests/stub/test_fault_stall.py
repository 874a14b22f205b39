"""The fault `stall`: an answer that stops in the middle and may go on."""

import asyncio

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub
from tests.stub.support import CHAT, PATHS

pytestmark = pytest.mark.anyio

STREAM = {**CHAT, "stream": True}


@pytest.mark.parametrize("after", [0, 3, 18, 100])
async def test_a_stream_stalls_after_so_many_events(client: aiohttp.ClientSession, plain: Stub, after: int) -> None:
    """Nothing comes until the faults are cleared, and then the rest; more events than there are stall the end."""
    plain.add_fault("stall", after=after)
    async with client.post(plain.url + PATHS["chat"], json=STREAM) as response:
        raw = b""
        while raw.count(b"\n\n") < min(after, 18):  # a role, 16 tokens, a finish
            raw += await response.content.readany()
        assert raw.count(b"\n\n") == min(after, 18)
        rest = asyncio.ensure_future(response.content.read())
        await plain.until(lambda state: state.running == 1 and not plain.faults)
        assert not rest.done()
        plain.clear_faults()
        raw += await rest
    assert raw.endswith(b"data: [DONE]\n\n")
    assert raw.count(b"\n\n") == 18 + 1


async def test_a_whole_answer_stalls_half_way(client: aiohttp.ClientSession, plain: Stub) -> None:
    """Half of the body comes, and the other half when the faults are cleared."""
    plain.add_fault("stall")
    async with client.post(plain.url + PATHS["chat"], json=CHAT) as response:
        half = await response.content.readany()
        assert 0 < len(half) < int(response.headers["Content-Length"])
        plain.clear_faults()
        assert orjson.loads(half + await response.content.read())["object"] == "chat.completion"


async def test_a_client_may_leave_a_stall(client: aiohttp.ClientSession, plain: Stub) -> None:
    """The worker stops then."""
    plain.add_fault("stall", after=2)
    async with client.post(plain.url + PATHS["chat"], json=STREAM) as response:
        await response.content.readuntil(b"\n\n")
    assert (await plain.until(lambda state: state.running == 0)).aborted == 1
