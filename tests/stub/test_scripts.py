"""What a stub answers to a prompt that says what it wants to hear."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.pairs import PATHS, frames, send

pytestmark = pytest.mark.anyio

ASKED = 'Weather? [calls look {"city": "Paris"}] [says It is fine.]'
LOOK = {"name": "look", "description": "Weather in a city"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
SAID: list[dict[str, Any]] = [{"role": "user", "content": ASKED}]
TOOLS: dict[str, Any] = {
    "chat": {"type": "function", "function": {**LOOK, "parameters": SCHEMA}},
    "responses": {"type": "function", **LOOK, "parameters": SCHEMA},
    "messages": {**LOOK, "input_schema": SCHEMA},
}
RESULTS: dict[str, list[dict[str, Any]]] = {
    "chat": [{"role": "tool", "tool_call_id": "1", "content": "fine"}],
    "responses": [{"type": "function_call_output", "call_id": "1", "output": "fine"}],
    "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "fine"}]}],
}

apis = pytest.mark.parametrize("api", TOOLS)


@pytest.fixture
async def scripted() -> AsyncIterator[Stub]:
    """A worker that does as it is told."""
    async with run_stub("vllm", allow_script=True) as stub:
        yield stub


def body(api: str, *results: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A request of an API."""
    said, limit = ("input", "max_output_tokens") if api == "responses" else ("messages", "max_tokens")
    return {"model": "stub", said: [*SAID, *results], limit: 100, **fields}


def whole(api: str, raw: bytes) -> tuple[str, dict[str, Any] | None, str]:
    """What a whole answer says, what it calls, and how it ended."""
    answer = orjson.loads(raw)
    match api:
        case "chat":
            (choice,) = answer["choices"]
            calls = choice["message"].get("tool_calls")
            called = orjson.loads(calls[0]["function"]["arguments"]) if calls else None
            return choice["message"]["content"], called, choice["finish_reason"]
        case "responses":
            (item,) = answer["output"]
            if item["type"] == "function_call":
                return "", orjson.loads(item["arguments"]), answer["status"]
            return item["content"][0]["text"], None, answer["status"]
        case _:
            (block,) = answer["content"]
            return block.get("text", ""), block.get("input"), answer["stop_reason"]


@apis
async def test_a_tool_that_is_offered_is_called(client: aiohttp.ClientSession, scripted: Stub, api: str) -> None:
    """With the arguments of the marker, until the result of a call is in the prompt."""
    ends = {
        "chat": ("tool_calls", "stop"),
        "responses": ("completed", "completed"),
        "messages": ("tool_use", "end_turn"),
    }
    offered = {"tools": [TOOLS[api]]}
    called = whole(api, (await send(client, scripted, PATHS[api], body(api, **offered)))[1])
    assert called == ("", {"city": "Paris"}, ends[api][0])
    told = whole(api, (await send(client, scripted, PATHS[api], body(api, *RESULTS[api], **offered)))[1])
    assert told == ("It is fine.", None, ends[api][1])


@apis
async def test_a_tool_that_is_not_offered_is_not_called(
    client: aiohttp.ClientSession, scripted: Stub, api: str
) -> None:
    """The text is said at once."""
    assert whole(api, (await send(client, scripted, PATHS[api], body(api)))[1])[:2] == ("It is fine.", None)


@apis
async def test_a_call_is_streamed_in_pieces(client: aiohttp.ClientSession, scripted: Stub, api: str) -> None:
    """They add up to the arguments of the whole call."""
    _, raw = await send(client, scripted, PATHS[api], body(api, tools=[TOOLS[api]], stream=True))
    pieces = [data for _, data in frames(raw) if data != "[DONE]"]
    match api:
        case "chat":
            deltas = [choice["delta"] for piece in pieces for choice in piece["choices"]]
            calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
            given = [call.get("arguments", "") for call in calls]
            assert [call["name"] for call in calls if "name" in call] == ["look"]
        case "responses":
            given = [piece["delta"] for piece in pieces if piece["type"] == "response.function_call_arguments.delta"]
            (done,) = (piece for piece in pieces if piece["type"] == "response.function_call_arguments.done")
            assert (done["name"], done["arguments"]) == ("look", "".join(given))
            assert pieces[-1]["response"]["output"][0]["id"] == done["item_id"]
        case _:
            given = [
                piece["delta"].get("partial_json", "") for piece in pieces if piece["type"] == "content_block_delta"
            ]
    assert len(given) > 1
    assert orjson.loads("".join(given)) == {"city": "Paris"}


async def test_without_leave_a_prompt_is_only_a_prompt(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """A worker obeys no marker unless it was started so."""
    text = whole("chat", (await send(client, vllm, PATHS["chat"], body("chat")))[1])[0]
    assert "fine" not in text
