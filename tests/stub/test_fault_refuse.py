"""The fault that closes the listening socket."""

import asyncio

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import Stub
from tests.stub.support import CHAT, PATHS, post

pytestmark = pytest.mark.anyio


async def test_refuse_closes_the_door(client: aiohttp.ClientSession, kept: aiohttp.ClientSession, plain: Stub) -> None:
    """New connections are refused and idle ones ended; a request that runs is finished; clearing reopens."""
    plain.add_fault("hang")
    running = asyncio.ensure_future(post(kept, plain, PATHS["chat"], CHAT))
    await plain.until(lambda state: state.running == 1 and not plain.faults)
    reader, writer = await asyncio.open_connection("127.0.0.1", plain.port)
    await plain.until(lambda state: state.connections_open == 2)

    plain.add_fault("refuse")
    assert await reader.read() == b""
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(client, plain, PATHS["chat"], CHAT)
    plain._book.clear()
    assert (await running)[0] == 200
    await plain.until(lambda state: state.connections_open == 0)

    plain.clear_faults()
    assert (await post(kept, plain, PATHS["chat"], CHAT))[0] == 200
    writer.close()


async def test_refuse_and_clear_may_follow_each_other_at_once(client: aiohttp.ClientSession, plain: Stub) -> None:
    """The last word counts, however fast the door is opened and closed."""
    for _ in range(5):
        plain.add_fault("refuse")
        plain.clear_faults()
    assert (await post(client, plain, PATHS["chat"], CHAT))[0] == 200
    plain.clear_faults()
    plain.add_fault("refuse")
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(client, plain, PATHS["chat"], CHAT)


async def test_refuse_may_end_by_itself(client: aiohttp.ClientSession, plain: Stub) -> None:
    """After the given seconds the same port accepts again."""
    plain.add_fault("refuse", seconds=0.01)
    answered = None
    while answered is None:
        try:
            answered = await post(client, plain, PATHS["chat"], CHAT)
        except aiohttp.ClientConnectorError:
            continue
    assert answered[0] == 200
