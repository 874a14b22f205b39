"""vLLM's connectors other than NIXL: Mooncake, shared storage and LMCache."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import ENDS_IN_CONTEXT, HandoffCounts, Stub, run_stub
from tests.stub.pairs import APIS, BODIES, EXTERNAL, LIMITS, PATHS, metrics, send, text_of
from tests.stub.support import Body

pytestmark = pytest.mark.anyio

Pair = tuple[Stub, Stub]
apis = pytest.mark.parametrize("api", APIS)


@pytest.fixture
async def mooncake() -> AsyncIterator[Pair]:
    """A pair with the Mooncake connector."""
    async with (
        run_stub("vllm", role="prefill", connector="mooncake") as prefill,
        run_stub("vllm", role="decode", connector="mooncake", failure_seconds=0) as decode,
    ):
        yield prefill, decode


async def query(client: aiohttp.ClientSession, prefill: Stub) -> tuple[str, str]:
    """Ask a bootstrap server for its engine; give its address and the engine's id."""
    address = f"http://127.0.0.1:{prefill.side_port}"
    async with client.get(address + "/query") as response:
        (rank,) = (await response.json()).values()
    assert rank["worker_addr"]["0"]["0"].startswith("tcp://")
    return address, rank["engine_id"]


def halves(api: str, address: str, engine_id: str, transfer: str = "t-1", **changes: object) -> tuple[Body, Body]:
    """Make the bodies of both legs of a transfer."""
    decoded = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer}
    prefilled: dict[str, Any] = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "transfer_id": transfer,
        "remote_engine_id": engine_id,
        "remote_bootstrap_addr": address,
    }
    first = {**BODIES[api], LIMITS[api]: 1, "ignore_eos": True, "kv_transfer_params": decoded, **changes}
    return first, {**BODIES[api], "kv_transfer_params": prefilled, **changes, LIMITS[api]: 6}


@apis
@pytest.mark.parametrize("order", ["prefill first", "decode first"])
async def test_a_transfer_gives_the_answer_of_one(
    client: aiohttp.ClientSession, vllm: Stub, mooncake: Pair, api: str, order: str
) -> None:
    """Both legs may be sent in any order: the decode leg waits for the transfer, whose answer says nothing of it."""
    prefill, decode = mooncake
    _status, expected = await send(client, vllm, PATHS[api], BODIES[api])
    first, second = halves(api, *await query(client, prefill))
    if order == "prefill first":
        _status, leg = await send(client, prefill, PATHS[api], first)
        assert prefill.state().handoffs == HandoffCounts(held=1)
        status, raw = await send(client, decode, PATHS[api], second)
    else:
        answer = asyncio.ensure_future(send(client, decode, PATHS[api], second))
        await decode.until(lambda state: state.running == 1)
        _status, leg = await send(client, prefill, PATHS[api], first)
        status, raw = await answer
    assert (status, text_of(raw)) == (200, text_of(expected))
    assert b"engine_id" not in leg
    assert (prefill.state().handoffs, prefill.state().held_blocks) == (HandoffCounts(fetched=1), 0)
    assert prefill.state().violations == decode.state().violations == {}
    assert (await metrics(client, decode))[EXTERNAL] == (70 if api == "completions" else 72)


async def test_a_transfer_is_good_once(client: aiohttp.ClientSession, mooncake: Pair) -> None:
    """A second decode leg, and a second prefill with the same id, are counted; the former reads nonsense."""
    prefill, decode = mooncake
    first, second = halves("chat", *await query(client, prefill))
    await send(client, prefill, PATHS["chat"], first)
    await send(client, decode, PATHS["chat"], second)
    status, raw = await send(client, decode, PATHS["chat"], second)
    assert (status, "amberamber" in text_of(raw)) == (200, True)
    assert decode.state().violations == {"handoff_used_twice": 1}
    assert (await send(client, prefill, PATHS["chat"], first))[0] == 200
    assert prefill.state().violations == {"transfer_id_reused": 1}
    assert prefill.state().held_blocks == 0


async def test_a_transfer_of_another_prompt(client: aiohttp.ClientSession, mooncake: Pair) -> None:
    """A decode leg with another prompt than the prefill's reads nonsense."""
    prefill, decode = mooncake
    first, second = halves("chat", *await query(client, prefill))
    await send(client, prefill, PATHS["chat"], first)
    await send(client, decode, PATHS["chat"], {**second, "messages": [{"role": "user", "content": "x"}]})
    assert decode.state().violations == {"handoff_prompt_differs": 1}


@pytest.mark.parametrize("name", ["transfer_id", "remote_engine_id", "remote_bootstrap_addr"])
async def test_a_transfer_from_nowhere_kills_the_worker(
    client: aiohttp.ClientSession, mooncake: Pair, name: str
) -> None:
    """Without an id, an engine or an address the decode worker dies."""
    prefill, decode = mooncake
    _first, second = halves("chat", *await query(client, prefill))
    del second["kv_transfer_params"][name]
    assert (await send(client, decode, PATHS["chat"], second))[0] == 500
    assert decode.state().violations == {"remote_prefill_from_nowhere": 1}


@pytest.mark.parametrize("wrong", ["engine", "address", "end"])
async def test_a_transfer_that_cannot_be(client: aiohttp.ClientSession, mooncake: Pair, wrong: str) -> None:
    """An unknown engine, a dead address, or a prefill that ended too early fail the decode leg with a 500."""
    prefill, decode = mooncake
    address, engine_id = await query(client, prefill)
    prompt = f"x {ENDS_IN_CONTEXT}" if wrong == "end" else "x"
    first, second = halves(
        "completions",
        "http://127.0.0.1:1" if wrong == "address" else address,
        "e-other" if wrong == "engine" else engine_id,
        prompt=prompt,
        ignore_eos=False,
    )
    await send(client, prefill, PATHS["completions"], first)
    status, _raw = await send(client, decode, PATHS["completions"], second)
    assert (status, decode.state().violations) == (500, {})


async def test_a_transfer_that_never_comes(client: aiohttp.ClientSession) -> None:
    """A decode leg whose prefill never comes gives up in the end; a prefill without an id is counted."""
    async with (
        run_stub("vllm", role="prefill", connector="mooncake", pair_seconds=0.01) as prefill,
        run_stub("vllm", role="decode", connector="mooncake", pair_seconds=0.01, failure_seconds=0) as decode,
    ):
        first, second = halves("chat", *await query(client, prefill))
        assert (await send(client, decode, PATHS["chat"], second))[0] == 500
        del first["kv_transfer_params"]["transfer_id"]
        assert (await send(client, prefill, PATHS["chat"], first))[0] == 200
        assert prefill.state().violations == {"transfer_without_id": 1}


async def test_a_dropped_decode_leg_frees_the_transfer(client: aiohttp.ClientSession, mooncake: Pair) -> None:
    """A client that leaves a decode leg which has not fetched yet leaves nothing held."""
    prefill, decode = mooncake
    decode.add_fault("hang")
    first, second = halves("chat", *await query(client, prefill))
    await send(client, prefill, PATHS["chat"], first)
    asked = asyncio.ensure_future(send(client, decode, PATHS["chat"], second))
    await decode.until(lambda state: state.running == 1)
    asked.cancel()
    state = await prefill.until(lambda state: state.held_blocks == 0)
    assert state.handoffs == HandoffCounts(released=1)
