"""What a real vLLM worker would answer wrongly in silence, and a stub counts."""

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub, run_stub
from tests.stub.pairs import APIS, BODIES, PATHS, metrics, prefill_body, relay, send, text_of
from tests.stub.support import Body

pytestmark = pytest.mark.anyio

Pair = tuple[Stub, Stub]


async def test_a_handoff_is_good_once(client: aiohttp.ClientSession, vllm: Stub, vllm_pair: Pair) -> None:
    """Used a second time it gives a 200 and nonsense, which only the violations tell."""
    prefill, decode = vllm_pair
    body = await relay(client, prefill, "chat")
    first = await send(client, decode, PATHS["chat"], body)
    status, raw = await send(client, decode, PATHS["chat"], body)
    assert status == 200
    assert text_of(raw) != text_of(first[1]) == text_of((await send(client, vllm, PATHS["chat"], BODIES["chat"]))[1])
    assert decode.state().violations == {"handoff_used_twice": 1}
    assert "remote_request_id" in decode.state().violation_notes[0]


async def test_a_handoff_lasts_as_long_as_its_lease(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """After its lease the blocks count as leaked, and a late decode leg is a 200 and nonsense."""
    _prefill, decode = vllm_pair
    async with run_stub("vllm", role="prefill", hold_seconds=0.01) as prefill:
        body = await relay(client, prefill, "chat")
        state = await prefill.until(lambda state: state.held_blocks == 0)
        assert (state.leaked_blocks, state.handoffs) == (3, HandoffCounts(expired=1))
        status, raw = await send(client, decode, PATHS["chat"], body)
        assert (status, decode.state().violations) == (200, {"handoff_expired": 1})
        assert len(set(text_of(raw))) < 8, "one word over and over"
        counted = await metrics(client, prefill)
        assert counted["vllm:nixl_num_kv_expired_reqs_total"] == 1
        assert counted["vllm:nixl_num_notifications_after_expiry_total"] == 1


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        ({"messages": [{"role": "user", "content": "something else"}]}, "handoff_prompt_differs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "handoff_prompt_differs"),
        ({"n": 2}, "handoff_for_many"),
    ],
)
async def test_a_decode_leg_unlike_its_prefill(
    client: aiohttp.ClientSession, vllm_pair: Pair, change: Body, violation: str
) -> None:
    """Another prompt than the prefill's, or several answers to it, is a 200 with nonsense in it."""
    prefill, decode = vllm_pair
    body = await relay(client, prefill, "chat", **change)
    status, raw = await send(client, decode, PATHS["chat"], body)
    assert (status, decode.state().violations) == (200, {violation: 1})
    texts = [choice["message"]["content"] for choice in orjson.loads(raw)["choices"]]
    assert "amberamber" in texts[-1]
    assert prefill.state().handoffs == HandoffCounts(fetched=1)


@pytest.mark.parametrize(
    ("field", "value", "violation"),
    [
        ("remote_block_ids", [[9, 9, 9]], "handoff_changed"),
        ("remote_num_tokens", 72.0, "handoff_changed"),
        ("tp_size", 2, "handoff_changed"),
        ("more", 1, "handoff_changed"),
        ("remote_request_id", "chatcmpl-other", "handoff_unknown"),
    ],
)
async def test_a_handoff_that_was_changed(
    client: aiohttp.ClientSession, vllm_pair: Pair, field: str, value: object, violation: str
) -> None:
    """A handoff is opaque: whatever is changed on its way is noticed."""
    prefill, decode = vllm_pair
    body = await relay(client, prefill, "chat")
    body["kv_transfer_params"][field] = value
    status, _raw = await send(client, decode, PATHS["chat"], body)
    assert (status, decode.state().violations) == (200, {violation: 1})


@pytest.mark.parametrize(
    ("change", "violation", "held"),
    [
        ({"stream": True}, "prefill_streamed", 1),
        ({"n": 2}, "prefill_of_many", 2),
        ({"max_tokens": 4}, "prefill_decodes", 1),
    ],
)
async def test_a_prefill_leg_that_asks_too_much(
    client: aiohttp.ClientSession, vllm_pair: Pair, change: Body, violation: str, held: int
) -> None:
    """A prefill leg that is streamed, asks for several answers or for more than a token is served, and counted."""
    prefill, _decode = vllm_pair
    status, raw = await send(client, prefill, PATHS["chat"], prefill_body("chat", **change))
    assert (status, prefill.state().violations) == (200, {violation: 1})
    assert prefill.state().handoffs == HandoffCounts(held=held)
    assert (b"remote_engine_id" in raw) is ("stream" not in change)


@pytest.mark.parametrize("api", APIS)
async def test_a_streamed_prefill_says_nothing(client: aiohttp.ClientSession, vllm_pair: Pair, api: str) -> None:
    """On no API does a streamed prefill tell where its blocks are, which stay pinned."""
    prefill, _decode = vllm_pair
    _status, raw = await send(client, prefill, PATHS[api], prefill_body(api, stream=True))
    assert (b"remote_engine_id" in raw, prefill.state().handoffs) == (False, HandoffCounts(held=1))


async def test_a_prefill_leg_for_the_wrong_worker(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """A decode worker that is told to prefill for another one holds blocks that nobody should ask it for."""
    _prefill, decode = vllm_pair
    await send(client, decode, PATHS["chat"], prefill_body("chat"))
    assert decode.state().violations == {"prefill_on_decode_worker": 1}


async def test_two_request_ids_are_one_too_many(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """An id that was appended in place of replaced is counted."""
    headers = [("X-Request-Id", "a"), ("X-Request-Id", "b")]
    async with client.post(vllm.url + PATHS["chat"], json=BODIES["chat"], headers=headers) as response:
        assert response.status == 200
    assert vllm.state().violations == {"request_id_twice": 1}


async def test_a_reset_forgets_violations(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """The control endpoint shows violations and where the side port is, and a reset drops them."""
    prefill, _decode = vllm_pair
    await send(client, prefill, PATHS["chat"], prefill_body("chat", max_tokens=2))
    async with client.get(prefill.url + "/_stub/state") as response:
        state = await response.json()
    assert state["violations"] == {"prefill_decodes": 1}
    assert len(state["violation_notes"]) == 1
    assert state["side_port"] == prefill.side_port
    prefill.reset()
    assert prefill.state().violations == {}
