"""vLLM's answers on its four APIs, whole and streamed."""

from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import ENDS_IN_CONTEXT, Stub, run_stub
from tests.stub.pairs import APIS, BODIES, LIMITS, PATHS, frames, last_of, send, text_of

pytestmark = pytest.mark.anyio

apis = pytest.mark.parametrize("api", APIS)


@apis
async def test_a_stream_has_the_text_of_the_whole_answer(client: aiohttp.ClientSession, vllm: Stub, api: str) -> None:
    """The events of a stream add up to the text that is given in one piece, and end as the API's streams do."""
    status, whole = await send(client, vllm, PATHS[api], BODIES[api])
    assert (status, len(text_of(whole).split())) == (200, 6)
    status, raw = await send(client, vllm, PATHS[api], {**BODIES[api], "stream": True})
    assert (status, text_of(raw)) == (200, text_of(whole))
    ends = {"responses": "response.completed", "messages": "message_stop"}
    assert frames(raw)[-1][0] == ends.get(api, "")
    assert (frames(raw)[-1][1] == "[DONE]") is (api not in ends)


async def test_all_apis_tell_of_a_chat_the_same(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """One turn asked on chat, Responses and messages is the same prompt, and so the same text."""
    answers = {text_of((await send(client, vllm, PATHS[api], BODIES[api]))[1]) for api in APIS[1:]}
    assert len(answers) == 1


@apis
async def test_a_header_gives_the_answer_its_id(client: aiohttp.ClientSession, vllm: Stub, api: str) -> None:
    """The request's id is that of the answer after a prefix, but for Responses."""
    _status, raw = await send(client, vllm, PATHS[api], BODIES[api], **{"X-Request-Id": "abc"})
    id = orjson.loads(raw)["id"]
    wanted = {"completions": "cmpl-abc", "chat": "chatcmpl-abc", "messages": "chatcmpl-abc"}
    assert id == wanted.get(api, id)
    assert api != "responses" or (id.startswith("resp_") and "abc" not in id)


async def test_the_last_text_comes_with_the_finish_reason(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """A chat's stream has a role, a chunk a token, the last one with the reason, and the usage if it was asked for."""
    body = {**BODIES["chat"], "stream": True, "stream_options": {"include_usage": True}}
    events = [data for _name, data in frames((await send(client, vllm, PATHS["chat"], body))[1])]
    assert len(events) == 1 + 6 + 1 + 1
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [event["choices"][0]["finish_reason"] for event in events[1:7]] == [None] * 5 + ["length"]
    assert events[6]["choices"][0]["delta"]["content"]
    assert events[7]["usage"]["completion_tokens"] == 6
    assert events[7]["system_fingerprint"]


async def test_continuous_usage_begins_with_the_role(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """With continuous_usage_stats every chunk counts what has come so far, the role's too."""
    options = {"include_usage": False, "continuous_usage_stats": True}
    body = {**BODIES["chat"], "max_tokens": 2, "stream": True, "stream_options": options}
    events = [data for _name, data in frames((await send(client, vllm, PATHS["chat"], body))[1])][:-1]
    assert [event["usage"]["completion_tokens"] for event in events] == [0, 1, 2]


async def test_a_responses_stream_is_complete(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """All events have their names in order and count up; the last one has the answer, which was cut."""
    _status, raw = await send(client, vllm, PATHS["responses"], {**BODIES["responses"], "stream": True})
    events = frames(raw)
    assert [data["sequence_number"] for _name, data in events] == list(range(len(events)))
    assert all(name == data["type"] for name, data in events)
    names = list(dict.fromkeys(name.removeprefix("response.") for name, _data in events))
    opening = ["created", "in_progress", "output_item.added", "content_part.added"]
    closing = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert names == [*opening, "output_text.delta", *closing]
    done = events[-1][1]["response"]
    assert (done["status"], done["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert done["output"][0]["id"] == events[2][1]["item"]["id"]


async def test_a_messages_stream_is_complete(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """The events of a messages stream have their names in order; the last but one says how it ended."""
    _status, raw = await send(client, vllm, PATHS["messages"], {**BODIES["messages"], "stream": True})
    names = list(dict.fromkeys(name for name, _data in frames(raw)))
    inner = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert names == ["message_start", *inner, "message_delta", "message_stop"]
    (delta,) = [data for name, data in frames(raw) if name == "message_delta"]
    assert delta["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == 6


@pytest.mark.parametrize(("api", "field"), [("completions", "stop"), ("chat", "stop"), ("messages", "stop_sequences")])
async def test_a_stop_string_ends_the_answer(client: aiohttp.ClientSession, vllm: Stub, api: str, field: str) -> None:
    """The answer ends before the stop string and says so in the API's words."""
    whole = text_of((await send(client, vllm, PATHS[api], BODIES[api]))[1])
    stop = whole.split()[3]
    _status, raw = await send(client, vllm, PATHS[api], {**BODIES[api], field: [stop]})
    answer = orjson.loads(raw)
    assert stop not in text_of(raw)
    if api == "messages":
        assert answer["stop_reason"] == "stop_sequence"
    else:
        assert (answer["choices"][0]["finish_reason"], answer["choices"][0]["stop_reason"]) == ("stop", stop)


@pytest.mark.parametrize(("ignore", "tokens"), [(False, 1), (True, 6)])
async def test_an_end_can_be_ignored(client: aiohttp.ClientSession, vllm: Stub, ignore: bool, tokens: int) -> None:
    """With ignore_eos an answer that would have ended goes on to its limit."""
    body = {**BODIES["completions"], "prompt": f"x {ENDS_IN_CONTEXT}", "ignore_eos": ignore}
    _status, raw = await send(client, vllm, PATHS["completions"], body)
    assert orjson.loads(raw)["usage"]["completion_tokens"] == tokens


@apis
async def test_cached_tokens_are_counted(client: aiohttp.ClientSession, vllm: Stub, api: str) -> None:
    """A prompt that was there before is cached in full blocks, and told so in the API's own way."""
    for _ in range(2):
        _status, raw = await send(client, vllm, PATHS[api], BODIES[api])
    usage: dict[str, Any] = orjson.loads(raw)["usage"]
    match api:
        case "messages":
            read, total = usage["cache_read_input_tokens"], usage["input_tokens"] + usage["cache_read_input_tokens"]
        case "responses":
            read, total = usage["input_tokens_details"]["cached_tokens"], usage["input_tokens"]
        case _:
            read, total = usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]
    assert (read, total) == (64, 70 if api == "completions" else 72)


async def test_token_ids_come_when_asked_for(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """With return_token_ids an answer has those of the prompt and its own, the same as /tokenize gives."""
    _status, raw = await send(client, vllm, "/tokenize", {"messages": BODIES["chat"]["messages"]})
    tokens = orjson.loads(raw)
    assert tokens["count"] == len(tokens["tokens"]) == 72
    _status, raw = await send(client, vllm, PATHS["chat"], {**BODIES["chat"], "return_token_ids": True})
    answer = orjson.loads(raw)
    assert answer["prompt_token_ids"] == tokens["tokens"]
    assert len(answer["choices"][0]["token_ids"]) == 6


@pytest.mark.parametrize("path", ["/health", "/ping", "/version", "/load", "/v1/models", "/metrics"])
async def test_it_tells_of_itself(client: aiohttp.ClientSession, vllm: Stub, path: str) -> None:
    """The endpoints that only ask about the worker are there and are no work."""
    async with client.get(vllm.url + path) as response:
        assert response.status == 200
        raw = await response.read()
    assert vllm.state().requests == 0
    match path:
        case "/version":
            assert orjson.loads(raw) == {"version": "0.32.0"}
        case "/v1/models":
            (card,) = orjson.loads(raw)["data"]
            assert (card["id"], card["owned_by"], card["max_model_len"]) == ("stub", "vllm", 131_072)


async def test_tokens_of_messages_are_counted(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """Counting the tokens of a messages request gives what its answer's usage has, and is no work."""
    status, raw = await send(client, vllm, "/v1/messages/count_tokens", BODIES["messages"])
    assert (status, orjson.loads(raw)["input_tokens"]) == (200, 72)
    assert (await send(client, vllm, "/v1/messages/count_tokens", {"messages": 5}))[0] == 400
    assert vllm.state().requests == 0


async def test_the_usage_rides_on_the_last_event(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """Every API's stream ends with what was used."""
    _status, raw = await send(client, vllm, PATHS["responses"], {**BODIES["responses"], "stream": True})
    assert last_of(raw)["response"]["usage"]["output_tokens"] == BODIES["responses"][LIMITS["responses"]]


async def test_names_of_a_release(client: aiohttp.ClientSession) -> None:
    """A worker says the release that it was told to behave as."""
    async with run_stub("vllm", engine_version="0.18.1") as stub, client.get(stub.url + "/version") as response:
        assert await response.json() == {"version": "0.18.1"}
