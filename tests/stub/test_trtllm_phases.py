"""The two phases of a TensorRT-LLM request, and that together they are one answer."""

from base64 import b64decode

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import ENDS_IN_CONTEXT, Stub, run_stub
from tests.stub.support import (
    BODIES,
    CHAT,
    COMPLETION,
    PATHS,
    Body,
    context_body,
    events,
    generation_body,
    hand_over,
    post,
    streamed_texts,
    texts,
)

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize("kind", ["completions", "chat"])


@kinds
@pytest.mark.parametrize(
    "options", [{}, {"max_tokens": 1}, {"max_tokens": 40}, {"n": 3}, {"stop": ["e", "日"]}, {"n": 2, "stop": "a"}]
)
async def test_two_phases_give_the_answer_of_one(
    client: aiohttp.ClientSession, workers: tuple[Stub, Stub, Stub], kind: str, options: Body
) -> None:
    """Context and generation together give texts, ends and usage of an aggregated worker, streamed or not."""
    context, generation, aggregated = workers
    path, body = PATHS[kind], {**BODIES[kind], **options}
    _status, expected = await post(client, aggregated, path, body)
    ends = [(choice["finish_reason"], choice["stop_reason"]) for choice in expected["choices"]]

    status, leg = await post(client, context, path, context_body(body))
    if leg["choices"][0]["finish_reason"] == "stop":
        assert texts(leg) == texts(expected)
        return
    status, answer = await post(client, generation, path, generation_body(body, leg))
    assert (status, texts(answer)) == (200, texts(expected))
    assert [(choice["finish_reason"], choice["stop_reason"]) for choice in answer["choices"]] == ends
    assert answer["usage"] == expected["usage"]

    again = await hand_over(client, context, path, body)
    chunks = await events(client, generation, path, {**again, "stream_options": {"include_usage": True}})
    assert streamed_texts(chunks) == texts(expected)
    assert chunks[-1]["usage"] == expected["usage"]


@kinds
async def test_a_context_answer_has_the_handoff(client: aiohttp.ClientSession, context: Stub, kind: str) -> None:
    """A context answer has one token, the prompt's token ids and everything that the generation leg needs."""
    number = (1 << 62) + 1
    status, answer = await post(client, context, PATHS[kind], context_body(BODIES[kind], number))
    assert status == 200
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 1
    params = choice["disaggregated_params"]
    assert params["request_type"] == "context_only"
    assert params["disagg_request_id"] == number
    assert params["ctx_request_id"] > 1 << 53
    assert params["ctx_info_endpoint"] == context.url
    assert params["ctx_dp_rank"] == 0
    assert len(params["first_gen_tokens"]) == 1
    assert b64decode(params["encoded_opaque_state"], validate=True)


async def test_each_choice_has_the_handoff(client: aiohttp.ClientSession, context: Stub) -> None:
    """With n choices there is one handoff, told in each of them."""
    _status, answer = await post(client, context, PATHS["chat"], context_body({**CHAT, "n": 3}))
    handoffs = [choice["disaggregated_params"] for choice in answer["choices"]]
    assert len(handoffs) == 3
    assert handoffs[0] == handoffs[1] == handoffs[2]
    assert context.state().handoffs.held == 1


async def test_packed_token_ids_are_for_chat_only(
    client: aiohttp.ClientSession, context: Stub, generation: Stub, aggregated: Stub
) -> None:
    """With return_prompt_token_ids_b64 a chat gets base64 in place of the list; completions keep the list."""
    _status, plain = await post(client, context, PATHS["chat"], context_body(CHAT, 1))
    asked = context_body(CHAT, 2, return_prompt_token_ids_b64=True)
    _status, packed = await post(client, context, PATHS["chat"], asked)
    assert packed["prompt_token_ids"] is None
    raw = b64decode(packed["prompt_token_ids_b64"])
    numbers = [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]
    assert numbers == plain["prompt_token_ids"]

    body = {**generation_body(CHAT, packed), "messages": CHAT["messages"][-1:]}
    _status, answer = await post(client, generation, PATHS["chat"], body)
    _status, expected = await post(client, aggregated, PATHS["chat"], CHAT)
    assert texts(answer) == texts(expected)

    asked = context_body(COMPLETION, 3, return_prompt_token_ids_b64=True)
    _status, answer = await post(client, context, PATHS["completions"], asked)
    assert answer["prompt_token_ids"]
    assert "prompt_token_ids_b64" not in answer


@kinds
async def test_an_answer_may_end_in_the_context_phase(
    client: aiohttp.ClientSession, context: Stub, aggregated: Stub, kind: str
) -> None:
    """A prompt with the marker ends there: reason `stop`, ids null, nothing held, the aggregated text."""
    body: Body = {**COMPLETION, "prompt": f"hello {ENDS_IN_CONTEXT}"}
    if kind == "chat":
        body = {**CHAT, "messages": [{"role": "user", "content": f"hello {ENDS_IN_CONTEXT}"}]}
    _status, answer = await post(client, context, PATHS[kind], context_body(body))
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["disaggregated_params"]["ctx_request_id"] is None
    assert context.state().held_blocks == 0
    _status, expected = await post(client, aggregated, PATHS[kind], body)
    assert texts(answer) == texts(expected)
    assert expected["choices"][0]["finish_reason"] == "stop"


async def test_a_context_worker_may_say_not_finished(client: aiohttp.ClientSession, generation: Stub) -> None:
    """Newer engines call a pending handoff `not_finished`."""
    async with run_stub("trtllm", role="context", context_finish="not_finished") as context:
        _status, answer = await post(client, context, PATHS["chat"], context_body(CHAT))
        assert answer["choices"][0]["finish_reason"] == "not_finished"
        assert (await post(client, generation, PATHS["chat"], generation_body(CHAT, answer)))[0] == 200


@pytest.mark.parametrize("params", [{}, {"disaggregated_params": None}])
@kinds
async def test_a_generation_worker_does_whole_requests(
    client: aiohttp.ClientSession, generation: Stub, aggregated: Stub, kind: str, params: Body
) -> None:
    """Without a handoff, or with an explicit null, a generation worker does the whole job."""
    status, answer = await post(client, generation, PATHS[kind], {**BODIES[kind], **params})
    _status, expected = await post(client, aggregated, PATHS[kind], BODIES[kind])
    assert (status, texts(answer)) == (200, texts(expected))


async def test_the_first_token_comes_from_the_handoff(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """A generation worker emits the first token that it is given, so a frontend must not add it itself."""
    body = await hand_over(client, context, PATHS["chat"], CHAT)
    params = body["disaggregated_params"]
    params["first_gen_tokens"] = [params["first_gen_tokens"][0] + 1]
    _status, answer = await post(client, generation, PATHS["chat"], body)
    _status, expected = await post(client, generation, PATHS["chat"], CHAT)
    ours, theirs = texts(answer)[0], texts(expected)[0]
    assert ours != theirs
    assert ours.split(" ", 1)[1] == theirs.split(" ", 1)[1]


async def test_usage_counts_the_context_phase(client: aiohttp.ClientSession, context: Stub, generation: Stub) -> None:
    """The counts of `ctx_usage` go into the usage of the answer."""
    body = await hand_over(client, context, PATHS["chat"], CHAT)
    details = {"cached_tokens": 3}
    body["disaggregated_params"]["ctx_usage"] = {
        "prompt_tokens": 70,
        "completion_tokens": 1,
        "total_tokens": 71,
        "prompt_tokens_details": details,
    }
    _status, answer = await post(client, generation, PATHS["chat"], body)
    assert answer["usage"] == {
        "prompt_tokens": 70,
        "completion_tokens": 16,
        "total_tokens": 86,
        "prompt_tokens_details": details,
    }


async def test_any_model_name_is_taken(client: aiohttp.ClientSession, aggregated: Stub) -> None:
    """TensorRT-LLM does not look at the model's name and answers with its own."""
    status, answer = await post(client, aggregated, PATHS["chat"], {**CHAT, "model": "another"})
    assert (status, answer["model"]) == (200, "stub")
