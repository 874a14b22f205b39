"""What vLLM workers of a pair do when the other one is gone, or the client is."""

import asyncio

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub, run_stub
from tests.stub.pairs import APIS, BODIES, PATHS, frames, metrics, prefill_body, relay, send, text_of

pytestmark = pytest.mark.anyio

Pair = tuple[Stub, Stub]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
async def test_blocks_from_nowhere_kill_the_worker(
    client: aiohttp.ClientSession, vllm_pair: Pair, api: str, stream: bool
) -> None:
    """A client's own do_remote_prefill is the end of the decode worker: a 500 or a cut, and then nothing."""
    _prefill, decode = vllm_pair
    body = {**BODIES[api], "stream": stream, "kv_transfer_params": {"do_remote_prefill": True}}
    status, raw = await send(client, decode, PATHS[api], body)
    assert status == (200 if stream else 500)
    assert stream or b"EngineCore encountered an issue" in raw
    assert b"[DONE]" not in raw
    with pytest.raises(aiohttp.ClientConnectorError):
        await send(client, decode, PATHS[api], BODIES[api])
    state = decode.state()
    assert (state.violations, state.faulted, state.running) == ({"remote_prefill_from_nowhere": 1}, 1, 0)
    await decode.restart()
    assert (await send(client, decode, PATHS[api], BODIES[api]))[0] == 200


@pytest.mark.parametrize(
    "name", ["remote_engine_id", "remote_request_id", "remote_host", "remote_port", "tp_size", "remote_block_ids"]
)
async def test_every_field_is_needed(client: aiohttp.ClientSession, vllm_pair: Pair, name: str) -> None:
    """A handoff that lost one of the fields without which there is no fetching kills the worker too."""
    prefill, decode = vllm_pair
    body = await relay(client, prefill, "chat")
    body["kv_transfer_params"][name] = None
    assert (await send(client, decode, PATHS["chat"], body))[0] == 500
    assert decode.state().violations == {"remote_prefill_from_nowhere": 1}
    assert name in decode.state().violation_notes[0]


@pytest.mark.parametrize("api", APIS)
async def test_a_dead_prefill_worker_is_an_error(client: aiohttp.ClientSession, vllm_pair: Pair, api: str) -> None:
    """A handoff of a worker that has died is a 500, in the API's envelope; of one that was restarted as well."""
    prefill, decode = vllm_pair
    body = await relay(client, prefill, api)
    prefill.kill()
    for _ in range(2):
        status, raw = await send(client, decode, PATHS[api], body)
        assert (status, orjson.loads(raw)["error"]["message"]) == (500, "Internal server error")
        assert ("type" in orjson.loads(raw)) is (api == "messages")
        await prefill.restart()
    assert decode.state().violations == {}, "that a worker dies is nobody's fault"


async def test_a_dead_prefill_worker_breaks_streams(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """A stream has begun by then: it has an error event, but one of Responses is cut."""
    prefill, decode = vllm_pair
    bodies = {api: await relay(client, prefill, api, stream=True) for api in APIS}
    prefill.kill()
    raws = {api: (await send(client, decode, PATHS[api], body))[1] for api, body in bodies.items()}
    chat = [data for _name, data in frames(raws["chat"])]
    assert chat[0]["choices"][0]["delta"]["role"] == "assistant"
    assert (chat[1]["error"]["code"], chat[2:]) == (500, ["[DONE]"])
    assert frames(raws["completions"])[0][1]["error"]["type"] == "InternalServerError"
    assert [name for name, _data in frames(raws["messages"])] == ["message_start", "error"]
    assert [name for name, _data in frames(raws["responses"])] == ["response.created", "response.in_progress"]
    state = decode.state()
    assert (state.finished, state.faulted) == (3, 1)


async def test_a_worker_can_compute_what_it_cannot_load(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """With the policy `recompute` a dead prefill worker costs time, and the answer is right."""
    _status, expected = await send(client, vllm, PATHS["chat"], BODIES["chat"])
    async with (
        run_stub("vllm", role="prefill") as prefill,
        run_stub("vllm", role="decode", failure_seconds=0, load_failure="recompute") as decode,
    ):
        body = await relay(client, prefill, "chat")
        prefill.kill()
        status, raw = await send(client, decode, PATHS["chat"], body)
        assert (status, text_of(raw)) == (200, text_of(expected))
        assert (await metrics(client, decode))["vllm:prompt_tokens_by_source_totallocal_compute"] == 72


async def test_it_takes_a_while_to_notice_a_dead_worker(client: aiohttp.ClientSession) -> None:
    """A decode worker waits before it gives up, and a client that leaves meanwhile is noticed."""
    async with (
        run_stub("vllm", role="prefill") as prefill,
        run_stub("vllm", role="decode", failure_seconds=60) as decode,
    ):
        body = await relay(client, prefill, "chat")
        prefill.kill()
        asked = asyncio.ensure_future(send(client, decode, PATHS["chat"], body))
        await decode.until(lambda state: state.running == 1)
        asked.cancel()
        state = await decode.until(lambda state: state.running == 0)
        assert state.aborted == 1


@pytest.mark.parametrize("fault", ["die_after_headers", "cut_mid_event", "exit"])
async def test_a_prefill_that_dies_with_its_answer_holds_nothing(
    client: aiohttp.ClientSession, vllm_pair: Pair, fault: str
) -> None:
    """Blocks of an answer that was broken on purpose are gone, as the worker is."""
    prefill, _decode = vllm_pair
    prefill.add_fault(fault)
    await send(client, prefill, PATHS["chat"], prefill_body("chat"))
    state = await prefill.until(lambda state: state.running == 0)
    assert (state.faulted, state.held_blocks, state.leaked_blocks) == (1, 0, 0)


async def test_a_decode_that_dies_tells_nobody(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """A decode worker that dies before it fetched leaves the blocks to their lease."""
    prefill, decode = vllm_pair
    body = await relay(client, prefill, "chat")
    decode.add_fault("die_before_headers")
    with pytest.raises(aiohttp.ClientError):
        await send(client, decode, PATHS["chat"], body)
    await decode.until(lambda state: state.running == 0)
    assert not decode.engine._errands
    assert prefill.state().handoffs == HandoffCounts(held=1)


async def test_no_handoff_is_a_null(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """A prefill answer can lack its handoff, and then nothing is held."""
    prefill, _decode = vllm_pair
    prefill.add_fault("no_handoff")
    await send(client, prefill, PATHS["chat"], BODIES["chat"])
    status, raw = await send(client, prefill, PATHS["chat"], prefill_body("chat"))
    assert (status, orjson.loads(raw)["kv_transfer_params"]) == (200, None)
    assert (prefill.state().held_blocks, prefill.faults) == (0, ())


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"engine_id": "x"}'])
async def test_a_malformed_fetch_is_refused(client: aiohttp.ClientSession, vllm_pair: Pair, raw: bytes) -> None:
    """The side port takes what decode workers send, and nothing else."""
    prefill, _decode = vllm_pair
    side = f"http://127.0.0.1:{prefill.side_port}"
    async with client.post(side + "/_stub/kv/pull", data=raw) as response:
        assert response.status == 400
    async with client.post(side + "/other", data=raw) as response:
        assert response.status == 404
