"""What a vLLM worker refuses, and in which words and envelopes."""

from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.pairs import APIS, BODIES, LIMITS, PATHS, WORDS, prefill_body, send
from tests.stub.support import Body

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("api", "change", "param"),
    [
        ("completions", {"prompt": None}, "body.prompt"),
        ("chat", {"messages": None}, "body.messages"),
        ("chat", {"messages": [{"content": "x"}]}, "body.messages.0.role"),
        ("chat", {"temperature": "hot"}, "body.temperature"),
        ("chat", {"kv_transfer_params": "x"}, "body.kv_transfer_params"),
        ("responses", {"input": None}, "body.input"),
        ("messages", {"max_tokens": None}, "body.max_tokens"),
        ("messages", {"model": None}, "body.model"),
    ],
)
async def test_a_body_of_the_wrong_form(
    client: aiohttp.ClientSession, vllm: Stub, api: str, change: Body, param: str
) -> None:
    """A field of the wrong type is a 400 of a type of its own, in OpenAI's envelope on every API."""
    status, raw = await send(client, vllm, PATHS[api], {**BODIES[api], **change})
    error = orjson.loads(raw)["error"]
    assert (status, error["type"], error["param"], error["code"]) == (400, "Bad Request", param, 400)
    assert param in error["message"]


@pytest.mark.parametrize("raw", [b"", b"{nope", b"[]", b'"x"'])
async def test_a_body_that_is_no_object(client: aiohttp.ClientSession, vllm: Stub, raw: bytes) -> None:
    """What is not a JSON object is a 400 that says where it went wrong."""
    headers = {"Content-Type": "application/json"}
    async with client.post(vllm.url + PATHS["chat"], data=raw, headers=headers) as response:
        error = orjson.loads(await response.read())["error"]
        assert (response.status, error["type"]) == (400, "Bad Request")


async def test_a_body_that_is_not_said_to_be_json(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """Only JSON is taken."""
    async with client.post(vllm.url + PATHS["chat"], data=b"{}", headers={"Content-Type": "text/plain"}) as response:
        assert response.status == 400


@pytest.mark.parametrize(
    ("api", "change", "status", "param"),
    [
        *((api, {"model": "other"}, 404, "model") for api in APIS),
        *((api, {LIMITS[api]: 0}, 400, LIMITS[api]) for api in APIS),
        *((api, {LIMITS[api]: 1_000}, 400, LIMITS[api]) for api in APIS),
        ("chat", {"max_completion_tokens": -5}, 400, "max_completion_tokens"),
        ("chat", {"stream": False, "stream_options": {"include_usage": True}}, 400, "stream_options"),
        ("completions", {"stream_options": {}}, 400, "stream_options"),
        ("chat", {"min_tokens": 7}, 400, "min_tokens"),
        ("chat", {"messages": []}, 400, "messages"),
        ("completions", {"prompt": []}, 400, "prompt"),
        ("completions", {"n": 0}, 400, "n"),
        ("responses", {"input": []}, 400, "input"),
        ("responses", {"previous_response_id": "resp_1"}, 404, "response_id"),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 6}}, 400, "thinking"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, None),
    ],
)
async def test_a_request_that_breaks_a_rule(
    client: aiohttp.ClientSession, api: str, change: Body, status: int, param: str | None
) -> None:
    """A rule that is broken is told with the field to blame; the messages API has Anthropic's envelope."""
    async with run_stub("vllm", context_tokens=500) as stub:
        answered, raw = await send(client, stub, PATHS[api], {**BODIES[api], **change})
    error: dict[str, Any] = orjson.loads(raw)["error"]
    assert answered == status
    if api == "messages":
        assert orjson.loads(raw)["type"] == "error"
        assert error.keys() == {"type", "message"}
    else:
        assert error["param"] == param


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_is_too_long(client: aiohttp.ClientSession, api: str, stream: bool) -> None:
    """A prompt without room for an answer is a 400, for a stream too; less room only cuts the answer."""
    async with run_stub("vllm", context_tokens=70) as stub:
        status, raw = await send(client, stub, PATHS[api], {**BODIES[api], "stream": stream})
        assert (status, b"maximum context length is 70 tokens" in raw) == (400, True)
    async with run_stub("vllm", context_tokens=74) as stub:
        status, raw = await send(client, stub, PATHS["completions"], {**BODIES["completions"], "prompt": WORDS})
        assert orjson.loads(raw)["usage"]["completion_tokens"] == 4


async def test_the_newer_name_of_the_limit_counts(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """A chat with both names of the token limit has the newer one's; a prefill leg has to change both."""
    body = {**BODIES["chat"], "max_tokens": 1, "max_completion_tokens": 3}
    _status, raw = await send(client, vllm, PATHS["chat"], body)
    assert orjson.loads(raw)["usage"]["completion_tokens"] == 3


async def test_thinking_may_exceed_the_limit_of_a_prefill(client: aiohttp.ClientSession) -> None:
    """From 0.33 on a prefill leg with its limit of one token may keep its thinking budget."""
    body = prefill_body("messages", thinking={"type": "enabled", "budget_tokens": 1_024})
    for version, status in (("0.32.0", 400), ("0.33.0", 200)):
        async with run_stub("vllm", role="prefill", engine_version=version) as stub:
            assert (await send(client, stub, PATHS["messages"], body))[0] == status
