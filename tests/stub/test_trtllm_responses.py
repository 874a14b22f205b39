"""TensorRT-LLM's Responses API, whose handoff is at the top of the answer."""

from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import ENDS_IN_CONTEXT, HandoffCounts, Stub
from tests.stub.pairs import frames, send, text_of
from tests.stub.support import Body, context_body, post

pytestmark = pytest.mark.anyio

PATH = "/v1/responses"
BODY: Body = {"model": "stub", "input": "one two three", "instructions": "be brief", "max_output_tokens": 6}


def generation(answer: dict[str, Any], **changes: object) -> Body:
    """Make the body of the generation leg."""
    usage = answer["usage"]
    counted = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }
    params = {**answer["disaggregated_params"], "request_type": "generation_only", "ctx_usage": counted}
    packed = answer["prompt_token_ids_b64"]
    ids = {"prompt_token_ids_b64": packed} if packed else {"prompt_token_ids": answer["prompt_token_ids"]}
    return {**BODY, "disaggregated_params": params, **ids, **changes}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("packed", [False, True])
async def test_two_phases_give_the_answer_of_one(
    client: aiohttp.ClientSession, workers: tuple[Stub, Stub, Stub], stream: bool, packed: bool
) -> None:
    """Context and generation together give text and usage of an aggregated worker, streamed or not."""
    context, generator, aggregated = workers
    _status, expected = await post(client, aggregated, PATH, BODY)
    asked = context_body(BODY, return_prompt_token_ids_b64=packed)
    del asked["stream_options"]
    status, leg = await post(client, context, PATH, asked)
    assert (status, leg["finish_reason"], leg["usage"]["output_tokens"]) == (200, "length", 1)
    assert (leg["prompt_token_ids"] is None) is packed
    status, raw = await send(client, generator, PATH, generation(leg, stream=stream, input="cut"))
    answer = frames(raw)[-1][1]["response"] if stream else orjson.loads(raw)
    assert (status, text_of(raw)) == (200, expected["output"][0]["content"][0]["text"])
    assert answer["usage"] == expected["usage"]
    assert context.state().handoffs == HandoffCounts(fetched=1)


async def test_an_answer_can_end_in_the_context(client: aiohttp.ClientSession, context: Stub) -> None:
    """An answer that ends with its first token has the reason `stop`, and nothing is held for it."""
    asked = context_body({**BODY, "input": f"x {ENDS_IN_CONTEXT}"})
    _status, leg = await post(client, context, PATH, asked)
    assert (leg["finish_reason"], leg["disaggregated_params"]["ctx_request_id"]) == ("stop", None)
    assert (leg["status"], context.state().held_blocks) == ("completed", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True, "store": False}, "background"),
        ({"disaggregated_params": {}}, "request_type"),
        ({"prompt_token_ids": []}, "prompt_token_ids"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
async def test_a_bad_request_is_refused(
    client: aiohttp.ClientSession, aggregated: Stub, change: Body, words: str
) -> None:
    """What is refused is a 400 that names the field; unknown fields are not."""
    assert (await post(client, aggregated, PATH, {**BODY, "no_such": 1}))[0] == 200
    status, answer = await post(client, aggregated, PATH, {**BODY, **change})
    assert (status, words in str(answer)) == (400, True)


async def test_tokens_of_messages_are_counted(client: aiohttp.ClientSession, context: Stub) -> None:
    """A context worker counts the tokens of a messages request, which is no work."""
    body = {"model": "stub", "max_tokens": 5, "messages": [{"role": "user", "content": "one two"}]}
    assert await post(client, context, "/v1/messages/count_tokens", body) == (200, {"input_tokens": 4})
    assert (await post(client, context, "/v1/messages/count_tokens", {"messages": [5]}))[0] == 400
    assert context.state().requests == 0
