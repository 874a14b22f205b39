"""The demo as a newcomer meets it: a real model behind the whole chain, asked by curl and by the openai SDK."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.programs import Kernel, kernel

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello"}]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel that was started without a file."""
    with kernel(tmp_path_factory.mktemp("demo"), None) as started:
        yield started
        assert started.program.stop() == 0, "".join(started.program.lines)


@pytest.fixture
def client(demo: Kernel) -> Iterator[openai.OpenAI]:
    """The openai SDK, told to try once."""
    with openai.OpenAI(base_url=f"{demo.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def curl(demo: Kernel, body: str, *words: str, path: str = "/v1/chat/completions") -> str:
    """What curl prints, called as the README says."""
    command = ["curl", "-sS", *words, f"{demo.url}{path}", "-d", body]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_curl_gets_a_streamed_answer_that_ends_with_done(demo: Kernel) -> None:
    """A stream has text and ends in `data: [DONE]`."""
    body = '{"model":"smollm2","messages":[{"role":"user","content":"Say hello"}],"stream":true}'

    answer = curl(demo, body, "-N")

    assert answer.endswith("data: [DONE]\n\n")
    assert '"content":' in answer


def test_curl_gets_a_whole_answer(demo: Kernel) -> None:
    """Without `stream` the answer is one chat completion."""
    answer = curl(demo, '{"model":"smollm2","messages":[{"role":"user","content":"Say hello"}]}')

    assert '"object":"chat.completion"' in answer


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/completions", {"prompt": "Once", "max_tokens": 4}, '"text_completion"'),
        ("/v1/responses", {"input": "Say hello", "max_output_tokens": 4}, '"output_text"'),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 4}, '"stop_reason":"max_tokens"'),
        ("/v1/messages?beta=true", {"messages": MESSAGES, "max_tokens": 4}, '"type":"message"'),
        ("/v1/messages/count_tokens", {"messages": MESSAGES}, '"input_tokens":'),
        ("/tokenize", {"content": "Say hello"}, '"tokens":'),
    ],
)
def test_curl_gets_an_answer_on_every_api(demo: Kernel, path: str, body: dict[str, object], said: str) -> None:
    """Each in its own words, of a worker that knows them all."""
    assert said in curl(demo, json.dumps({"model": "smollm2", **body}), path=path)


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        ("/v1/responses", {"input": "Say hello", "max_output_tokens": 4}, r"event: response\.(in)?complete"),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 4}, r"event: message_stop"),
    ],
)
def test_curl_gets_a_stream_on_every_api(demo: Kernel, path: str, body: dict[str, object], last: str) -> None:
    """It ends as streams of its API do."""
    answer = curl(demo, json.dumps({"model": "smollm2", "stream": True, **body}), path=path)
    assert re.match(last, answer.rstrip().split("\n\n")[-1])
    assert answer.endswith("\n\n")


def test_the_sdk_reads_answers_and_streams(client: openai.OpenAI) -> None:
    """Chat and completions work through the SDK, streamed and not."""
    whole = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=8)
    chunks = list(client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=8, stream=True))
    text = client.completions.create(model="smollm2", prompt="Once upon a time", max_tokens=8)
    parts = list(client.completions.create(model="smollm2", prompt="Once upon a time", max_tokens=8, stream=True))

    assert whole.choices[0].message.content
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.choices[0].text
    assert parts


def test_the_sdk_follows_a_response(client: openai.OpenAI) -> None:
    """Its helper puts the events together, which takes all of their numbers."""
    with client.responses.stream(model="smollm2", input="Say hello", max_output_tokens=8) as stream:
        events = list(stream)

    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert any(event.type == "response.output_text.delta" and event.snapshot for event in events)


def test_the_sdk_lists_the_model(client: openai.OpenAI) -> None:
    """The configured model is the one that is listed."""
    assert [model.id for model in client.models.list()] == ["smollm2"]


@pytest.mark.parametrize("stream", [False, True])
def test_errors_reach_the_sdk_as_their_types(client: openai.OpenAI, stream: bool) -> None:
    """A bad request is a BadRequestError and an unknown model a NotFoundError, with the fields of the envelope."""
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="smollm2", messages=[], stream=stream)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-none", messages=MESSAGES, stream=stream)

    assert bad.value.param == "messages"
    assert unknown.value.code == "model_not_found"


def test_a_prompt_that_is_too_long_has_its_code(client: openai.OpenAI) -> None:
    """Agents compact a conversation when they see `context_length_exceeded`."""
    long: list[ChatCompletionMessageParam] = [{"role": "user", "content": "word " * 5000}]

    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="smollm2", messages=long)

    assert error.value.code == "context_length_exceeded"


def test_the_demo_says_what_to_try(demo: Kernel) -> None:
    """Once it is ready it prints three commands."""
    printed = "".join(demo.program.lines)

    assert printed.count("curl ") == 2
    assert " plugins\n" in printed


def test_the_workers_end_with_a_kernel_that_is_killed(tmp_path: Path) -> None:
    """No worker outlives a kernel that had no time to say goodbye."""
    with kernel(tmp_path, None) as started:
        urls = {line["worker"] for line in started.logged("worker.up")}
        assert len(urls) == 2
        started.program.kill()

        for url in urls:
            command = ["curl", "-sS", "--retry", "0", "-o", "/dev/null", f"{url}/health"]
            assert _fails_soon(command), f"{url} still answers"


def _fails_soon(command: list[str]) -> bool:
    return any(subprocess.run(command, check=False, capture_output=True, timeout=10).returncode for _ in range(200))
