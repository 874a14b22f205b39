"""The handoff between vLLM workers, and what becomes of one that is misused."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub, run_stub
from tests.stub.pairs import APIS, BODIES, EXTERNAL, LOCAL, PATHS, metrics, prefill_body, relay, send, text_of

pytestmark = pytest.mark.anyio

Pair = tuple[Stub, Stub]
apis = pytest.mark.parametrize("api", APIS)


@apis
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("connector", ["nixl", "nixl-push"])
async def test_a_pair_gives_the_answer_of_one(
    client: aiohttp.ClientSession, vllm: Stub, api: str, stream: bool, connector: str
) -> None:
    """Both legs together give the text of an aggregated worker, and nothing is held or wrong after it."""
    _status, expected = await send(client, vllm, PATHS[api], BODIES[api])
    async with (
        run_stub("vllm", role="prefill", connector=connector) as prefill,
        run_stub("vllm", role="decode", connector=connector) as decode,
    ):
        body = await relay(client, prefill, api, stream=stream)
        assert prefill.state().handoffs == HandoffCounts(held=1)
        status, raw = await send(client, decode, PATHS[api], body)
        assert (status, text_of(raw)) == (200, text_of(expected))
        state = prefill.state()
        assert (state.handoffs, state.held_blocks, state.leaked_blocks) == (HandoffCounts(fetched=1), 0, 0)
        assert prefill.state().violations == decode.state().violations == {}


@apis
async def test_the_decode_worker_computes_nothing(client: aiohttp.ClientSession, vllm_pair: Pair, api: str) -> None:
    """The decode worker's own counters say that all of the prompt came from the other one."""
    prefill, decode = vllm_pair
    status, raw = await send(client, decode, PATHS[api], await relay(client, prefill, api))
    tokens = 70 if api == "completions" else 72
    counted = await metrics(client, decode)
    assert (counted[EXTERNAL], counted[LOCAL]) == (tokens, 0)
    assert counted["vllm:prompt_tokens_total"] == counted["vllm:external_prefix_cache_hits_total"] == tokens
    assert counted["vllm:nixl_bytes_transferred_sum"] > 0
    assert counted["vllm:num_requests_running"] == 0
    usage = orjson.loads(raw)["usage"]
    if api == "chat":
        assert (status, usage["prompt_tokens_details"]["cached_tokens"]) == (200, 0)
    assert (await metrics(client, prefill))[LOCAL] == tokens


async def test_a_handoff_has_its_fields(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """A prefill answer has the handoff at its top, with the blocks of the prompt and where they are."""
    prefill, _decode = vllm_pair
    _status, raw = await send(client, prefill, PATHS["chat"], prefill_body("chat"), **{"X-Request-Id": "abc"})
    params: dict[str, Any] = orjson.loads(raw)["kv_transfer_params"]
    assert (params["remote_host"], params["remote_port"]) == ("127.0.0.1", prefill.side_port)
    assert params.pop("remote_request_id").startswith("chatcmpl-abc-")
    assert len(params.pop("remote_block_ids")[0]) == 3
    assert isinstance(params.pop("remote_engine_id"), str)
    assert {name: params[name] for name in ("do_remote_prefill", "do_remote_decode", "remote_num_tokens")} == {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_num_tokens": 72,
    }
    sizes = {"tp_size", "dcp_size", "pp_size"}
    more = {"remote_blocks_expiry_time", "transfer_mode", "remote_prefill_cached_tokens"}
    assert params.keys() - sizes - more == {
        *("do_remote_prefill", "do_remote_decode", "remote_num_tokens", "remote_host", "remote_port")
    }
    assert prefill.state().held_blocks == 3


async def test_workers_answer_without_a_handoff_too(client: aiohttp.ClientSession, vllm: Stub, vllm_pair: Pair) -> None:
    """A request without parameters is answered whole by either worker, which computes the prompt itself."""
    _status, expected = await send(client, vllm, PATHS["chat"], BODIES["chat"])
    for stub in vllm_pair:
        for params in (None, {"do_remote_prefill": False, "do_remote_decode": False}):
            status, raw = await send(client, stub, PATHS["chat"], {**BODIES["chat"], "kv_transfer_params": params})
            assert (status, text_of(raw)) == (200, text_of(expected))
            assert orjson.loads(raw)["kv_transfer_params"] is None
        assert (stub.state().violations, stub.state().handoffs) == ({}, HandoffCounts())


@apis
@pytest.mark.parametrize("stream", [False, True])
async def test_a_decode_answer_can_have_fields_of_its_own(
    client: aiohttp.ClientSession, api: str, stream: bool
) -> None:
    """A worker set up for the way back puts addresses into its answers and last chunks, for a front end to strip."""
    async with (
        run_stub("vllm", role="prefill") as prefill,
        run_stub("vllm", role="decode", bidirectional=True) as decode,
    ):
        body = await relay(client, prefill, api, stream=stream)
        _status, raw = await send(client, decode, PATHS[api], body)
        assert raw.count(b'"do_remote_decode":true') == 1
        assert raw.count(b'"remote_host"') == 1


async def test_many_pairs_at_once_leave_nothing(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """Two hundred relays at the same time are all right, and nothing is held, leaked or wrong after them."""
    prefill, decode = vllm_pair

    async def run(number: int) -> None:
        api = APIS[number % 4]
        body = await relay(client, prefill, api, stream=number % 2 == 1)
        assert (await send(client, decode, PATHS[api], body))[0] == 200

    await asyncio.gather(*map(run, range(200)))
    for stub in vllm_pair:
        state = stub.state()
        assert (state.running, state.finished, state.held_blocks, state.leaked_blocks) == (0, 200, 0, 0)
        assert state.violations == {}
    assert prefill.state().handoffs == HandoffCounts(fetched=200)
