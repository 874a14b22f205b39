"""The accounts of held KV blocks, and what becomes of a handoff that is wrong."""

import asyncio

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub, run_stub
from plugins.dispatch.embedded.stub.handoffs import DROPPED
from tests.stub.support import CHAT, COMPLETION, PATHS, context_body, generation_body, hand_over, post

pytestmark = pytest.mark.anyio


async def test_blocks_are_held_until_they_are_fetched(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """A context answer holds blocks for its whole prompt; the generation leg releases them, once."""
    body = await hand_over(client, context, PATHS["completions"], {**COMPLETION, "prompt": "word " * 65})
    state = context.state()
    assert (state.held_blocks, state.handoffs) == (3, HandoffCounts(held=1))
    assert (await post(client, generation, PATHS["completions"], body))[0] == 200
    state = context.state()
    assert (state.held_blocks, state.leaked_blocks, state.handoffs) == (0, 0, HandoffCounts(fetched=1))
    assert state.requests == 1, "a fetch is no request for work"


async def test_a_handoff_is_good_for_one_fetch(client: aiohttp.ClientSession, context: Stub, generation: Stub) -> None:
    """A generation leg that is repeated with the same handoff is a 500 that names the cause."""
    body = await hand_over(client, context, PATHS["chat"], CHAT)
    assert (await post(client, generation, PATHS["chat"], body))[0] == 200
    status, answer = await post(client, generation, PATHS["chat"], body)
    assert status == 500
    assert (answer["object"], answer["type"], answer["code"]) == ("error", "InternalServerError", 500)
    assert "fetched" in answer["message"]
    assert context.state().handoffs == HandoffCounts(fetched=1)


async def test_blocks_that_nobody_fetches_leak(client: aiohttp.ClientSession, generation: Stub) -> None:
    """After its time a handoff is gone, its blocks are counted as leaked, and a late fetch is a 500."""
    async with run_stub("trtllm", role="context", hold_seconds=0.01) as context:
        body = await hand_over(client, context, PATHS["chat"], CHAT)
        state = await context.until(lambda state: state.held_blocks == 0)
        assert (state.leaked_blocks, state.handoffs) == (1, HandoffCounts(expired=1))
        status, answer = await post(client, generation, PATHS["chat"], body)
        assert status == 500
        assert "expired" in answer["message"]


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        ("ctx_request_id", 12345, 500),
        ("encoded_opaque_state", "AAAA", 500),
        ("ctx_info_endpoint", "http://127.0.0.1:1", 500),
        ("ctx_info_endpoint", "http://not a host", 500),
        ("ctx_info_endpoint", "tcp://127.0.0.1:1", 400),
        *((name, None, 400) for name in ("ctx_request_id", "disagg_request_id", "first_gen_tokens")),
        *((name, None, 400) for name in ("encoded_opaque_state", "ctx_info_endpoint")),
        ("first_gen_tokens", [], 400),
        ("schedule_style", 1, 400),
        ("request_type", "context_only", 400),
        ("request_type", "other", 400),
    ],
)
async def test_a_wrong_handoff_is_refused(
    client: aiohttp.ClientSession, workers: tuple[Stub, Stub, Stub], field: str, value: object, status: int
) -> None:
    """A changed handoff is refused in the engine's shape and leaves the blocks held."""
    context, generation, _aggregated = workers
    body = await hand_over(client, context, PATHS["chat"], CHAT)
    body["disaggregated_params"][field] = value
    answered, answer = await post(client, generation, PATHS["chat"], body)
    assert (answered, answer["object"], answer["code"]) == (status, "error", status)
    assert context.state().handoffs == HandoffCounts(held=1)


@pytest.mark.parametrize("kind", ["completions", "chat"])
async def test_another_prompt_than_the_held_one_is_refused(
    client: aiohttp.ClientSession, context: Stub, generation: Stub, kind: str
) -> None:
    """Token ids that are not those of the context leg are a 400; the right ones still work after it."""
    body = await hand_over(client, context, PATHS[kind], {"completions": COMPLETION, "chat": CHAT}[kind])
    field = "prompt" if kind == "completions" else "prompt_token_ids"
    status, answer = await post(client, generation, PATHS[kind], {**body, field: [*body[field], 7]})
    assert (status, answer["type"]) == (400, "BadRequestError")
    assert (await post(client, generation, PATHS[kind], body))[0] == 200


async def test_a_chat_with_its_history_cut_needs_the_token_ids(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """Messages alone do when they are all there, and do not when the front end has cut them."""
    body = await hand_over(client, context, PATHS["chat"], CHAT)
    del body["prompt_token_ids"]
    cut = {**body, "messages": CHAT["messages"][-1:]}
    assert (await post(client, generation, PATHS["chat"], cut))[0] == 400
    assert (await post(client, generation, PATHS["chat"], body))[0] == 200


async def test_a_dead_context_worker_fails_the_generation_leg(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """Blocks die with their worker: a 500 while it is down, and another one after its restart."""
    body = await hand_over(client, context, PATHS["chat"], CHAT)
    context.kill()
    status, answer = await post(client, generation, PATHS["chat"], body)
    assert (status, answer["type"]) == (500, "InternalServerError")
    await context.restart()
    status, answer = await post(client, generation, PATHS["chat"], body)
    assert status == 500
    assert "unknown" in answer["message"]


async def test_an_id_in_flight_is_refused_a_second_time(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """While a context request runs or its blocks are held, its id cannot be used again; then it can."""
    context.add_fault("slow", seconds=60)
    asked = context_body(CHAT, 77)
    running = asyncio.ensure_future(post(client, context, PATHS["chat"], asked))
    await context.until(lambda state: state.running == 1 and not context.faults)
    status, refused = await post(client, context, PATHS["chat"], asked)
    assert (status, "in flight" in refused["message"]) == (400, True)
    running.cancel()
    await context.until(lambda state: state.aborted == 1)

    status, answer = await post(client, context, PATHS["chat"], asked)
    assert status == 200
    status, refused = await post(client, context, PATHS["chat"], asked)
    assert (status, "in flight" in refused["message"]) == (400, True)
    assert (await post(client, generation, PATHS["chat"], generation_body(CHAT, answer)))[0] == 200
    assert (await post(client, context, PATHS["chat"], asked))[0] == 200


async def test_a_generation_id_in_flight_is_refused_a_second_time(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """A generation worker takes no second request with the id of one that runs."""
    generation.add_fault("slow", seconds=60)
    body = await hand_over(client, context, PATHS["chat"], CHAT)
    running = asyncio.ensure_future(post(client, generation, PATHS["chat"], body))
    await context.until(lambda state: state.held_blocks == 0)
    status, refused = await post(client, generation, PATHS["chat"], body)
    assert (status, "in flight" in refused["message"]) == (400, True)
    running.cancel()
    await generation.until(lambda state: state.aborted == 1)
    status, refused = await post(client, generation, PATHS["chat"], body)
    assert (status, "fetched" in refused["message"]) == (500, True)


@pytest.mark.parametrize("moment", ["running", "answering"])
async def test_blocks_of_an_answer_that_nobody_gets_are_released(
    client: aiohttp.ClientSession, context: Stub, moment: str
) -> None:
    """A client that leaves before its context answer, or an answer that breaks, leaves nothing held."""
    if moment == "running":
        context.add_fault("hang")
        leg = asyncio.ensure_future(post(client, context, PATHS["chat"], context_body(CHAT)))
        await context.until(lambda state: state.running == 1)
        leg.cancel()
        state = await context.until(lambda state: state.aborted == 1)
    else:
        context.add_fault("cut_mid_event")
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(client, context, PATHS["chat"], context_body(CHAT))
        state = await context.until(lambda state: state.faulted == 1)
        assert state.handoffs == HandoffCounts(dropped=1)
    assert (state.held_blocks, state.leaked_blocks) == (0, 0)


@pytest.mark.parametrize(("raw", "status"), [(b"", 400), (b"{", 400), (b"[]", 400), (b'{"ctx_request_id": 1}', 400)])
async def test_a_malformed_fetch_is_refused(
    client: aiohttp.ClientSession, context: Stub, generation: Stub, raw: bytes, status: int
) -> None:
    """The side endpoint takes well-formed fetches only, and only a context worker has it."""
    async with client.post(context.url + "/_stub/kv/fetch", data=raw) as response:
        assert response.status == status
    async with client.post(generation.url + "/_stub/kv/fetch", data=raw) as response:
        assert response.status == 404


async def test_a_thousand_handoffs_are_forgotten_in_order(client: aiohttp.ClientSession, context: Stub) -> None:
    """What is remembered of ended handoffs does not grow without end."""
    for number in range(1, 1_101):
        handoff = context.engine.handoffs.hold(number, [1])
        context.engine.handoffs.end(handoff, DROPPED)
        context.engine.handoffs.end(handoff, DROPPED)
    assert context.state().handoffs == HandoffCounts(dropped=1_100)
    assert len(context.engine.handoffs._ended) == 1_000
