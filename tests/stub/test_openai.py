"""The plain OpenAI-compatible worker."""

from typing import Any

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.support import BODIES, CHAT, COMPLETION, PATHS, Body, events, post, streamed_texts, texts

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize("kind", ["completions", "chat"])


@kinds
async def test_a_whole_answer_has_all_its_parts(client: aiohttp.ClientSession, plain: Stub, kind: str) -> None:
    """An answer has an id of its kind, one choice, sixteen tokens by default, and the usage."""
    status, answer = await post(client, plain, PATHS[kind], BODIES[kind])
    assert status == 200
    assert answer["id"].startswith("chatcmpl-" if kind == "chat" else "cmpl-")
    assert answer["object"] == ("chat.completion" if kind == "chat" else "text_completion")
    assert answer["model"] == "stub"
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length"]
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["usage"]["total_tokens"] == 16 + answer["usage"]["prompt_tokens"]


@kinds
async def test_a_stream_has_the_text_of_the_whole_answer(client: aiohttp.ClientSession, plain: Stub, kind: str) -> None:
    """The chunks of a stream share one id and add up to the text that is given in one piece."""
    _status, answer = await post(client, plain, PATHS[kind], BODIES[kind])
    chunks = await events(client, plain, PATHS[kind], BODIES[kind])
    assert streamed_texts(chunks) == texts(answer)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert all("usage" not in chunk for chunk in chunks)


async def test_a_chat_stream_opens_with_the_role(client: aiohttp.ClientSession, plain: Stub) -> None:
    """First the role, then one chunk a token, then the finish reason."""
    chunks = await events(client, plain, PATHS["chat"], {**CHAT, "max_tokens": 3})
    assert len(chunks) == 1 + 3 + 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


@kinds
async def test_usage_comes_last_when_asked_for(client: aiohttp.ClientSession, plain: Stub, kind: str) -> None:
    """With include_usage the last chunk has no choices and the usage of the whole answer."""
    body = {**BODIES[kind], "n": 2, "stream_options": {"include_usage": True}}
    chunks = await events(client, plain, PATHS[kind], body)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 32


async def test_usage_comes_along_when_asked_for(client: aiohttp.ClientSession, plain: Stub) -> None:
    """With continuous_usage_stats every token's chunk counts what has come so far."""
    options = {"include_usage": False, "continuous_usage_stats": True}
    body = {**COMPLETION, "max_tokens": 3, "stream_options": options}
    chunks = await events(client, plain, PATHS["completions"], body)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks if "usage" in chunk] == [1, 2, 3]


@kinds
async def test_n_gives_so_many_choices(client: aiohttp.ClientSession, plain: Stub, kind: str) -> None:
    """Each of n choices has an index and a text of its own, streamed or not."""
    body = {**BODIES[kind], "n": 3}
    _status, answer = await post(client, plain, PATHS[kind], body)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len(set(texts(answer))) == 3
    assert streamed_texts(await events(client, plain, PATHS[kind], body)) == texts(answer)


@pytest.mark.parametrize(
    ("prompt", "choices", "tokens"),
    [("one two", 1, 2), (["one", "two three"], 2, 3), ([5, 6, 7], 1, 3), ([[5], [6, 7]], 2, 3), ("", 1, 1)],
)
async def test_every_form_of_prompt_is_understood(
    client: aiohttp.ClientSession, plain: Stub, prompt: object, choices: int, tokens: int
) -> None:
    """Text, token ids and lists of either are prompts; each prompt of a list has its own choice."""
    _status, answer = await post(client, plain, PATHS["completions"], {**COMPLETION, "prompt": prompt})
    assert (len(answer["choices"]), answer["usage"]["prompt_tokens"]) == (choices, tokens)


@kinds
async def test_a_stop_string_ends_the_answer(client: aiohttp.ClientSession, plain: Stub, kind: str) -> None:
    """The answer ends before the stop string, with the reason `stop`, streamed or not."""
    _status, answer = await post(client, plain, PATHS[kind], BODIES[kind])
    stop = texts(answer)[0].split()[5]
    body = {**BODIES[kind], "stop": ["not in there", stop]}
    _status, stopped = await post(client, plain, PATHS[kind], body)
    assert texts(answer)[0].startswith(texts(stopped)[0])
    assert stop not in texts(stopped)[0]
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["choices"][0]["stop_reason"] == stop
    assert streamed_texts(await events(client, plain, PATHS[kind], body)) == texts(stopped)


async def test_chat_takes_both_names_of_the_token_limit(client: aiohttp.ClientSession, plain: Stub) -> None:
    """max_tokens and max_completion_tokens both limit a chat's answer."""
    for name in ("max_tokens", "max_completion_tokens"):
        _status, answer = await post(client, plain, PATHS["chat"], {**CHAT, name: 5})
        assert answer["usage"]["completion_tokens"] == 5


async def test_extra_fields_are_ignored(client: aiohttp.ClientSession, plain: Stub) -> None:
    """Unknown fields, and known ones that a stub has no use for, change nothing."""
    _status, expected = await post(client, plain, PATHS["chat"], CHAT)
    status, answer = await post(client, plain, PATHS["chat"], {**CHAT, "logprobs": True, "no_such": {"a": 1}})
    assert (status, texts(answer)) == (200, texts(expected))


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"model": None}, 400, "body.model"),
        ({"model": 7}, 400, "body.model"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": "many"}, 400, "body.max_tokens"),
        ({"max_tokens": True}, 400, "body.max_tokens"),
        ({"n": 0}, 400, "n"),
        ({"n": 1_000}, 400, "n"),
        ({"temperature": "hot"}, 400, "body.temperature"),
        ({"stream": "yes"}, 400, "body.stream"),
        ({"stop": [1]}, 400, "body.stop"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
        ({"stream_options": [], "stream": True}, 400, "body.stream_options"),
        ({"prompt": None}, 400, "body.prompt"),
        ({"prompt": 5}, 400, "body.prompt"),
        ({"prompt": [1 << 40]}, 400, "body.prompt"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": ["a", ""]}, 400, "prompt"),
    ],
)
async def test_a_bad_completions_field_is_refused(
    client: aiohttp.ClientSession, plain: Stub, change: Body, status: int, param: str
) -> None:
    """What is wrong is refused in OpenAI's envelope, which names the field, also for a stream."""
    body = {**COMPLETION, **change}
    answered, answer = await post(client, plain, PATHS["completions"], body)
    assert answered == status
    assert answer["error"].keys() == {"message", "type", "param", "code"}
    assert (answer["error"]["param"], answer["error"]["code"]) == (param, status)


@pytest.mark.parametrize("messages", [None, [], "hello", ["hello"], [{"content": "no role"}], [{"role": 1}]])
async def test_bad_messages_are_refused(client: aiohttp.ClientSession, plain: Stub, messages: Any) -> None:
    """A chat needs a list of objects with roles."""
    status, answer = await post(client, plain, PATHS["chat"], {**CHAT, "messages": messages})
    assert status == 400
    assert "messages" in answer["error"]["param"]


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"model": "stub"} trailing', b"[]", b'"text"', b"null", b'{"a": "\\ud800"}', b"\xff", b"[" * 5_000],
)
async def test_a_body_that_is_no_json_object_is_refused(client: aiohttp.ClientSession, plain: Stub, raw: bytes) -> None:
    """Broken, empty, deep and non-object JSON are answered 400, and the worker serves on."""
    headers = {"Content-Type": "application/json"}
    async with client.post(plain.url + PATHS["chat"], data=raw, headers=headers) as response:
        assert response.status == 400
        assert (await response.json())["error"]["type"] == "Bad Request"
    assert (await post(client, plain, PATHS["chat"], CHAT))[0] == 200


async def test_another_content_type_is_refused(client: aiohttp.ClientSession, plain: Stub) -> None:
    """A body that is not announced as JSON is not looked at."""
    headers = {"Content-Type": "text/plain"}
    async with client.post(plain.url + PATHS["chat"], data=b"{}", headers=headers) as response:
        assert response.status == 400


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_is_too_long_is_refused(client: aiohttp.ClientSession, stream: bool) -> None:
    """A prompt that leaves no room is answered 400 in JSON with both numbers, also for a stream."""
    async with run_stub("openai", context_tokens=8) as stub:
        body = {**COMPLETION, "prompt": "word " * 8, "stream": stream}
        status, answer = await post(client, stub, PATHS["completions"], body)
        assert status == 400
        assert answer["error"]["param"] == "input_tokens"
        assert "maximum context length is 8 tokens" in answer["error"]["message"]


async def test_an_answer_is_cut_where_the_room_ends(client: aiohttp.ClientSession) -> None:
    """An answer that is longer than the room that is left is cut to it, without an error."""
    async with run_stub("openai", context_tokens=8) as stub:
        body = {**COMPLETION, "prompt": "word " * 7, "max_tokens": 10**12}
        status, answer = await post(client, stub, PATHS["completions"], body)
        assert (status, answer["usage"]["completion_tokens"]) == (200, 1)
