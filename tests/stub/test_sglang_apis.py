"""SGLang's answers on its APIs, and what it refuses."""

from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from tests.stub.pairs import APIS, BODIES, LIMITS, PATHS, frames, metrics, send, text_of
from tests.stub.support import Body

pytestmark = pytest.mark.anyio

apis = pytest.mark.parametrize("api", APIS)


@apis
async def test_a_stream_has_the_text_of_the_whole_answer(client: aiohttp.ClientSession, sglang: Stub, api: str) -> None:
    """The events of a stream add up to the text that is given in one piece, and end as the API's streams do."""
    status, whole = await send(client, sglang, PATHS[api], BODIES[api])
    assert (status, len(text_of(whole).split())) == (200, 6)
    status, raw = await send(client, sglang, PATHS[api], {**BODIES[api], "stream": True})
    assert (status, text_of(raw)) == (200, text_of(whole))
    ends = {"responses": "response.incomplete", "messages": "message_stop"}
    assert frames(raw)[-1][0] == ends.get(api, "")
    assert (frames(raw)[-1][1] == "[DONE]") is (api not in ends)


async def test_a_chat_stream_is_in_its_own_pieces(client: aiohttp.ClientSession, sglang: Stub) -> None:
    """The role, one chunk a token, a chunk with the reason, and the usage when asked for."""
    body = {**BODIES["chat"], "stream": True, "stream_options": {"include_usage": True}}
    events = [data for _name, data in frames((await send(client, sglang, PATHS["chat"], body))[1])]
    assert len(events) == 1 + 6 + 1 + 1 + 1
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[7]["choices"][0]["delta"] == {"reasoning_content": None}
    assert events[7]["choices"][0]["finish_reason"] == "length"
    assert events[8]["usage"]["reasoning_tokens"] == 0
    assert "matched_stop" in events[1]["choices"][0]


async def test_any_model_is_echoed(client: aiohttp.ClientSession, sglang: Stub) -> None:
    """A model that is not served is answered as if it were."""
    status, raw = await send(client, sglang, PATHS["chat"], {**BODIES["chat"], "model": "other"})
    assert (status, orjson.loads(raw)["model"]) == (200, "other")


async def test_the_own_id_is_the_answers(client: aiohttp.ClientSession, sglang: Stub) -> None:
    """What a request calls itself is the id of its answer."""
    _status, raw = await send(client, sglang, PATHS["chat"], {**BODIES["chat"], "rid": "k-1"})
    assert orjson.loads(raw)["id"] == "k-1"


@pytest.mark.parametrize(
    ("api", "change", "words"),
    [
        ("chat", {"messages": None}, "'messages'"),
        ("chat", {"messages": [{"role": "x"}]}, "role"),
        ("chat", {"temperature": "hot"}, "temperature"),
        ("chat", {"max_tokens": -5}, "max_new_tokens must be at least 0, got -5"),
        ("chat", {"max_tokens": 1_000}, "max_completion_tokens is too large"),
        ("chat", {"max_tokens": 450}, "maximum context length of 500 tokens"),
        ("chat", {"messages": []}, "messages"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
        ("completions", {"prompt": 5}, "prompt"),
        ("completions", {"prompt": "word " * 500}, "longer than the model's context length"),
        ("completions", {"bootstrap_room": 1.5}, "bootstrap_room"),
        ("completions", {"bootstrap_room": "5"}, "bootstrap_room"),
        ("completions", {"bootstrap_room": -1}, "bootstrap_room"),
        ("completions", {"bootstrap_room": 1 << 63}, "bootstrap_room"),
        ("completions", {"bootstrap_room": True}, "bootstrap_room"),
        ("completions", {"bootstrap_port": 0}, "bootstrap_port"),
        ("completions", {"bootstrap_host": 5}, "bootstrap_host"),
        ("responses", {"input": None}, "input"),
        ("responses", {"previous_response_id": "r"}, "Response store is disabled"),
        ("messages", {"max_tokens": None}, "max_tokens: Input should be"),
        ("messages", {"messages": []}, "messages"),
    ],
)
async def test_a_bad_request_is_told_in_its_envelope(
    client: aiohttp.ClientSession, api: str, change: Body, words: str
) -> None:
    """What is refused is a 400, flat on completions and chat, in envelopes of their own on the other two."""
    async with run_stub("sglang", context_tokens=500) as stub:
        status, raw = await send(client, stub, PATHS[api], {**BODIES[api], **change})
    answer: dict[str, Any] = orjson.loads(raw)
    assert status == 400
    match api:
        case "messages":
            assert (answer["type"], answer["error"].keys()) == ("error", {"type", "message"})
        case "responses":
            assert answer["error"].keys() == {"message", "type", "param", "code"}
        case _:
            assert answer["object"] == "error"
    assert words in (answer.get("error") or answer)["message"]


async def test_schema_errors_tell_of_the_server(client: aiohttp.ClientSession, sglang: Stub) -> None:
    """The words of a schema error name a source file of the server, which a front end must not pass on."""
    async with client.post(
        sglang.url + PATHS["chat"], data=b"{", headers={"Content-Type": "application/json"}
    ) as answer:
        error = orjson.loads(await answer.read())
    assert (answer.status, error["type"], error["param"]) == (400, "Bad Request", None)
    assert "http_server.py" in error["message"]


@apis
async def test_no_tokens_are_an_answer(client: aiohttp.ClientSession, sglang: Stub, api: str) -> None:
    """A limit of nothing is taken, and answered with an empty text."""
    status, raw = await send(client, sglang, PATHS[api], {**BODIES[api], LIMITS[api]: 0})
    assert (status, text_of(raw)) == (200, "")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((path, 200) for path in ("/health", "/health_generate", "/server_info", "/get_server_info", "/v1/models")),
        *(("/ping", 200), ("/", 200), ("/version", 404), ("/load", 404)),
    ],
)
async def test_it_tells_of_itself(client: aiohttp.ClientSession, sglang: Stub, path: str, status: int) -> None:
    """The endpoints that only ask about the worker are there, but for those that it does not have."""
    async with client.get(sglang.url + path) as response:
        assert response.status == status
    async with client.head(sglang.url + "/") as response:
        assert response.status == 200


@apis
async def test_cached_tokens_are_counted(client: aiohttp.ClientSession, sglang: Stub, api: str) -> None:
    """A prompt that was there before is cached in full blocks, and told so in the API's own way."""
    for _ in range(2):
        _status, raw = await send(client, sglang, PATHS[api], BODIES[api])
    usage = orjson.loads(raw)["usage"]
    match api:
        case "messages":
            assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (8, 64)
        case "responses":
            assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (72, 64)
        case _:
            assert usage["prompt_tokens_details"] == {"cached_tokens": 64}


async def test_info_tells_the_role(client: aiohttp.ClientSession) -> None:
    """The mode of a worker and the port of its bootstrap server are told."""
    modes = {}
    for role in ("prefill", "decode", "both"):
        async with run_stub("sglang", role=role) as stub, client.get(stub.url + "/server_info") as response:
            info = await response.json()
            modes[role] = info["disaggregation_mode"]
            assert info["disaggregation_bootstrap_port"] == (stub.side_port or 8_998)
    assert modes == {"prefill": "prefill", "decode": "decode", "both": "null"}


async def test_tokens_are_told(client: aiohttp.ClientSession, sglang: Stub) -> None:
    """Token ids and counts are those of the answers' usage, and asking for them is no work."""
    _status, raw = await send(client, sglang, "/tokenize", {"prompt": BODIES["completions"]["prompt"]})
    assert orjson.loads(raw)["count"] == 70
    _status, raw = await send(client, sglang, "/v1/messages/count_tokens", BODIES["messages"])
    assert orjson.loads(raw) == {"input_tokens": 72}
    assert (await send(client, sglang, "/tokenize", {}))[0] == 400
    assert sglang.state().requests == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_the_own_api_tells_probabilities(client: aiohttp.ClientSession, sglang: Stub, stream: bool) -> None:
    """The engine's own API has a text and much about it; its events repeat the text so far."""
    _status, raw = await send(client, sglang, "/tokenize", {"prompt": "one two"})
    ids = orjson.loads(raw)["tokens"]
    asked = {"input_ids": ids, "sampling_params": {"max_new_tokens": 3}, "return_logprob": True, "stream": stream}
    status, raw = await send(client, sglang, "/generate", asked)
    answers = [data for _name, data in frames(raw)[:-1]] if stream else [orjson.loads(raw)]
    assert (status, len(answers)) == (200, 3 if stream else 1)
    meta = answers[-1]["meta_info"]
    assert [entry[1] for entry in meta["input_token_logprobs"]] == ids
    assert meta["finish_reason"] == {"type": "length", "length": 3}
    assert len(answers[-1]["output_ids"]) == len(meta["output_token_logprobs"]) == 3
    assert answers[-1]["text"].startswith(answers[0]["text"])
    named = {"text": "one two", "sampling_params": {"max_new_tokens": 3}}
    assert orjson.loads((await send(client, sglang, "/generate", named))[1])["text"] == answers[-1]["text"]


@pytest.mark.parametrize("body", [{}, {"text": "x", "sampling_params": {"n": 2}}, {"text": 5}, {"input_ids": []}])
async def test_the_own_api_refuses(client: aiohttp.ClientSession, sglang: Stub, body: Body) -> None:
    """Without one prompt and one answer to it there is nothing to do."""
    assert (await send(client, sglang, "/generate", body))[0] == 400


async def test_tokens_are_counted_by_what_was_done(client: aiohttp.ClientSession, sglang: Stub) -> None:
    """The counters tell prompts that were computed from those that were cached, and both from answers."""
    for _ in range(2):
        await send(client, sglang, PATHS["completions"], BODIES["completions"])
    counted = await metrics(client, sglang)
    names = ("prefill_compute", "prefill_cache", "decode")
    assert [counted[f"sglang:realtime_tokens_total{name}"] for name in names] == [76, 64, 12]
    assert counted["sglang:num_running_reqs"] == 0
