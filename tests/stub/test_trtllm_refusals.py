"""What a TensorRT-LLM worker refuses, and in which words and shapes."""

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.support import CHAT, COMPLETION, PATHS, Body, context_body, post

pytestmark = pytest.mark.anyio

SHARED: list[tuple[Body, str]] = [
    ({"no_such_field": 1}, "no_such_field"),
    ({"kv_transfer_params": {}}, "kv_transfer_params"),
    ({"model": None}, "model"),
    ({"n": None}, "'n'"),
    ({"ignore_eos": None}, "ignore_eos"),
    ({"temperature": "hot"}, "temperature"),
    ({"stream": 1}, "stream"),
    ({"stop": {}}, "stop"),
    ({"priority": 2}, "priority"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"early_stopping": "maybe"}, "early_stopping"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"other": True}}, "other"),
    ({"conversation_params": {"conversation_id": "  "}}, "conversation_id"),
    ({"conversation_params": {}}, "conversation_id"),
    ({"response_format": {"type": "yaml"}}, "response_format"),
    ({"disaggregated_params": {}}, "request_type"),
    ({"disaggregated_params": {"request_type": "context_only", "conversation_id": "c"}}, "conversation_id"),
    ({"disaggregated_params": {"request_type": "context_only", "disagg_request_id": "7"}}, "disagg_request_id"),
    ({"disaggregated_params": {"request_type": "context_only", "schedule_style": 3}}, "schedule_style"),
    (
        {"disaggregated_params": {"request_type": "generation_only", "ctx_usage": {"input_tokens": 3}}},
        "input_tokens",
    ),
]
COMPLETIONS_ONLY: list[tuple[Body, str]] = [
    ({"messages": []}, "messages"),
    ({"max_completion_tokens": 5}, "max_completion_tokens"),
    ({"suffix": "end"}, "suffix"),
    ({"prompt": 5}, "prompt"),
    ({"logprobs": True}, "logprobs"),
]
CHAT_ONLY: list[tuple[Body, str]] = [
    ({"prompt": "x"}, "prompt"),
    ({"messages": ["x"]}, "messages"),
    ({"messages": [{"role": "user", "content": "x", "tools": []}]}, "tools"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"cache_salt": " "}, "cache_salt"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tools": [{"type": "function", "function": {"name": "f", "other": 1}}]}, "other"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"thinking": {"type": "maybe"}}, "thinking"),
]
CASES = [
    *(("completions", *case) for case in SHARED + COMPLETIONS_ONLY),
    *(("chat", *case) for case in SHARED + CHAT_ONLY),
]


@pytest.mark.parametrize(("kind", "change", "named"), CASES)
async def test_a_bad_field_is_a_validation_error(
    client: aiohttp.ClientSession, aggregated: Stub, kind: str, change: Body, named: str
) -> None:
    """A body that does not validate is 400 with the text of the problem under `error`, naming the field."""
    body = {"completions": COMPLETION, "chat": CHAT}[kind]
    status, answer = await post(client, aggregated, PATHS[kind], {**body, **change})
    assert status == 400
    assert answer.keys() == {"error"}
    assert named in answer["error"]
    assert answer["error"].startswith("1 validation error")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("completions", {"logprobs": 1, "echo": None, "detokenize": True, "priority": 0.5, "seed": 1}),
        ("completions", {"stop": None, "stream_options": None, "suffix": None, "max_tokens": 2.0}),
        ("chat", {"max_completion_tokens": 3, "tools": [{"function": {"name": "f"}}], "tool_choice": "auto"}),
        ("chat", {"logprobs": True, "top_logprobs": 1, "reasoning_effort": "low", "user": "u", "cache_salt": "s"}),
        ("chat", {"conversation_params": {"conversation_id": 7}, "thinking": {"type": "disabled"}}),
        ("chat", {"messages": [{"role": "system", "tools": [{}]}, {"role": "user", "name": "n", "x": 1}]}),
        ("chat", {"chat_template": None, "chat_template_kwargs": {"a": 1}, "response_format": {"type": "text"}}),
    ],
)
async def test_a_good_field_is_taken(client: aiohttp.ClientSession, aggregated: Stub, kind: str, fields: Body) -> None:
    """Every field of the engine is taken, with null where the engine allows null."""
    body = {"completions": COMPLETION, "chat": CHAT}[kind]
    status, answer = await post(client, aggregated, PATHS[kind], {**body, **fields})
    assert status == 200, answer


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stream": True}, "streamed"),
        ({"stream": True, "stream_options": {"include_usage": True}}, "streamed"),
        ({"prompt": ["a", "b"]}, "one prompt"),
        ({"prompt": []}, "empty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"disaggregated_params": None}, "role context"),
        ({"disaggregated_params": {"request_type": "context_only"}}, "disagg_request_id"),
        ({"disaggregated_params": {"request_type": "context_only", "disagg_request_id": 0}}, "disagg_request_id"),
        ({"disaggregated_params": {"request_type": "generation_only"}}, "generation_only"),
    ],
)
async def test_a_bad_context_request_is_refused(
    client: aiohttp.ClientSession, context: Stub, change: Body, words: str
) -> None:
    """What a context worker itself refuses is 400 in the flat shape, and holds nothing."""
    body = {**context_body(COMPLETION), **change}
    status, answer = await post(client, context, PATHS["completions"], body)
    assert status == 400
    assert answer.keys() == {"object", "message", "type", "param", "code"}
    assert (answer["object"], answer["type"], answer["code"]) == ("error", "BadRequestError", 400)
    assert words in answer["message"]
    assert context.state().handoffs.held == 0


@pytest.mark.parametrize("kind", ["context_only", "generation_only"])
async def test_an_aggregated_worker_takes_no_legs(client: aiohttp.ClientSession, aggregated: Stub, kind: str) -> None:
    """A worker of both roles does whole requests and refuses either half."""
    body = {**CHAT, "disaggregated_params": {"request_type": kind, "disagg_request_id": 1}}
    status, answer = await post(client, aggregated, PATHS["chat"], body)
    assert (status, kind in answer["message"]) == (400, True)


async def test_a_prompt_that_is_too_long_has_a_code(client: aiohttp.ClientSession) -> None:
    """An over-long prompt is 400 with the code that agents look for, before anything is held."""
    async with run_stub("trtllm", role="context", context_tokens=8) as stub:
        body = context_body({**COMPLETION, "prompt": "word " * 9})
        status, answer = await post(client, stub, PATHS["completions"], body)
        assert (status, answer["code"], answer["type"]) == (400, "context_length_exceeded", "BadRequestError")
        assert "maximum context length is 8 tokens" in answer["message"]
        assert "resulted in 9 tokens" in answer["message"]


async def test_a_chat_template_needs_permission(client: aiohttp.ClientSession, aggregated: Stub) -> None:
    """A request's own chat template is 400 unless the server was started for it."""
    body = {**CHAT, "chat_template": "{{ 1 }}"}
    status, answer = await post(client, aggregated, PATHS["chat"], body)
    assert (status, "chat_template" in answer["message"]) == (400, True)
    async with run_stub("trtllm", allow_chat_template=True) as stub:
        assert (await post(client, stub, PATHS["chat"], body))[0] == 200


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ({"prompt_token_ids": []}, "empty"),
        ({"prompt_token_ids_b64": "not base64!"}, "base64"),
        ({"prompt_token_ids_b64": "AAA="}, "base64"),
        ({"prompt_token_ids_b64": "/////w=="}, "negative"),
        ({"messages": []}, "messages"),
    ],
)
async def test_bad_token_ids_are_refused(
    client: aiohttp.ClientSession, aggregated: Stub, tokens: Body, words: str
) -> None:
    """Token ids of a chat must be there and must be whole numbers of 32 bits."""
    status, answer = await post(client, aggregated, PATHS["chat"], {**CHAT, **tokens})
    assert (status, words in answer["message"]) == (400, True)
