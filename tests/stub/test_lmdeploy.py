"""A stub of LMDeploy's workers is as strict as the protocol, and tells what a real one would hide."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.support import BODIES, CHAT, PATHS, Body, events, post, streamed_texts, texts

pytestmark = pytest.mark.anyio

PREFILL = {"max_tokens": 1, "with_cache": True, "preserve_cache": True}


@pytest.fixture
async def workers() -> AsyncIterator[tuple[Stub, Stub]]:
    """A prefill and a decode worker."""
    async with run_stub("lmdeploy", role="prefill") as prefill, run_stub("lmdeploy", role="decode") as decode:
        yield prefill, decode


async def link(client: aiohttp.ClientSession, one: Stub, other: Stub) -> None:
    """Connect two workers."""
    ready: dict[Stub, Any] = {}
    async with client.get(one.url + "/distserve/engine_info") as response:
        config = orjson.loads(await response.json())
    for own, peer in ((one, other), (other, one)):
        body = {
            "local_engine_id": own.url,
            "local_engine_config": config,
            "remote_engine_id": peer.url,
            "remote_engine_config": config,
            "protocol": 2,
        }
        _, ready[own] = await post(client, own, "/distserve/p2p_initialize", body)
    for own, peer in ((one, other), (other, one)):
        names = ("engine_endpoint_info", "kvtransfer_endpoint_info")
        body = {"protocol": 2, "remote_engine_id": peer.url, **{f"remote_{name}": ready[peer][name] for name in names}}
        assert await post(client, own, "/distserve/p2p_connect", body) == (200, {"status": 1})


async def prefill_of(client: aiohttp.ClientSession, stub: Stub, path: str, body: Body) -> Body:
    """The place of a cache, as a front end names it."""
    status, answer = await post(client, stub, path, {**body, **PREFILL})
    assert status == 200
    return {
        "protocol": 2,
        "remote_engine_id": stub.url,
        "remote_session_id": int(answer["id"]),
        "remote_block_ids": answer["cache_block_ids"],
        "remote_token_id": answer["remote_token_ids"][-1],
        "is_dummy_prefill": False,
    }


@pytest.mark.parametrize("api", PATHS)
async def test_a_cache_goes_over_once(client: aiohttp.ClientSession, workers: tuple[Stub, Stub], api: str) -> None:
    """The answer is that of one worker, whole and streamed; a second use is told as the fault that it is."""
    prefill, decode = workers
    path, body = PATHS[api], BODIES[api]
    await link(client, prefill, decode)
    _, expected = await post(client, decode, path, body)
    asked = {**body, "migration_request": await prefill_of(client, prefill, path, body)}
    assert prefill.state().held_blocks == 1
    _, answer = await post(client, decode, path, asked)
    assert texts(answer) == texts(expected)
    assert (answer["cache_block_ids"], answer["remote_token_ids"]) == (None, None)
    assert (prefill.state().held_blocks, prefill.state().handoffs.fetched) == (0, 1)
    asked = {**body, "migration_request": await prefill_of(client, prefill, path, body)}
    assert streamed_texts(await events(client, decode, path, asked)) == texts(expected)
    assert decode.state().violations == {}
    _, again = await post(client, decode, path, asked)
    assert texts(again) != texts(expected)
    assert decode.state().violations == {"handoff_used_twice": 1}


async def test_workers_that_are_not_connected_hand_nothing_over(
    client: aiohttp.ClientSession, workers: tuple[Stub, Stub]
) -> None:
    """An error without a word of why, and the cache stays where it is until it is given up."""
    prefill, decode = workers
    asked = {**CHAT, "migration_request": await prefill_of(client, prefill, PATHS["chat"], CHAT)}
    status, _ = await post(client, decode, PATHS["chat"], asked)
    assert (status, decode.state().violations) == (500, {"not_connected": 1})
    session = asked["migration_request"]["remote_session_id"]
    body = {"remote_engine_id": prefill.url, "remote_session_id": session}
    for _ in range(2):  # of a cache that is gone already nothing is said
        assert await post(client, prefill, "/distserve/free_cache", body) == (200, {"status": "SUCCESS"})
    assert (prefill.state().held_blocks, prefill.state().handoffs.released) == (0, 1)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"remote_session_id": 99}, "handoff_unknown"),
        ({"remote_block_ids": [1]}, "handoff_changed"),
        ({"remote_token_id": -1}, "handoff_changed"),
    ],
)
async def test_a_handoff_that_was_changed_is_told(
    client: aiohttp.ClientSession, workers: tuple[Stub, Stub], change: Body, kind: str
) -> None:
    """A real worker would answer with another text."""
    prefill, decode = workers
    await link(client, prefill, decode)
    migration = await prefill_of(client, prefill, PATHS["chat"], CHAT)
    await post(client, decode, PATHS["chat"], {**CHAT, "migration_request": {**migration, **change}})
    assert decode.state().violations == {kind: 1}
    prefill.reset()


@pytest.mark.parametrize(
    "fields",
    [
        {"migration_request": {}},
        {"migration_request": {"protocol": "RDMA"}},
        {"migration_request": 7},
        {**PREFILL, "n": 2},
        {**PREFILL, "with_cache": "yes"},
    ],
)
async def test_what_makes_no_sense_is_refused(
    client: aiohttp.ClientSession, workers: tuple[Stub, Stub], fields: Body
) -> None:
    """With a 400."""
    status, _ = await post(client, workers[0], PATHS["chat"], {**CHAT, **fields})
    assert status == 400
    assert workers[0].state().held_blocks == 0


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"max_tokens": 5}, "prefill_decodes"),
        ({"preserve_cache": False}, "prefill_not_preserved"),
        ({"session_id": 3}, "session_of_a_client"),
    ],
)
async def test_a_prefill_that_is_more_than_one_is_told(
    client: aiohttp.ClientSession, workers: tuple[Stub, Stub], fields: Body, kind: str
) -> None:
    """And so is one that nobody could take over."""
    await post(client, workers[0], PATHS["chat"], {**CHAT, **PREFILL, **fields})
    assert workers[0].state().violations == {kind: 1}
    workers[0].reset()


async def test_a_connection_has_its_order(client: aiohttp.ClientSession, workers: tuple[Stub, Stub]) -> None:
    """What was not got ready for cannot be connected or ended, and what is connected is not got ready for again."""
    prefill, decode = workers
    body = {
        "protocol": 2,
        "remote_engine_id": decode.url,
        "remote_engine_endpoint_info": {"zmq_address": "tcp://a:1"},
        "remote_kvtransfer_endpoint_info": [{}],
    }
    assert (await post(client, prefill, "/distserve/p2p_connect", body))[0] == 500
    assert (await post(client, prefill, "/distserve/p2p_initialize", {}))[0] == 422
    drop = {"engine_id": prefill.url, "remote_engine_id": decode.url}
    assert (await post(client, prefill, "/distserve/p2p_drop_connect", drop))[0] == 500
    await link(client, prefill, decode)
    await link(client, prefill, decode)
    assert prefill.state().violations == {"link_made_twice": 1}
    assert await post(client, prefill, "/distserve/p2p_drop_connect", drop) == (200, {"success": True})
