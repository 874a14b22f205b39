"""What real clients were seen to send is answered as each needs it, over a vLLM pair and workers that only chat."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.e2e.programs import Kernel, kernel, stub, until
from tests.plugins.clients import REQUESTS, Sent
from tests.plugins.streams import split

LAST = {
    "/v1/chat/completions": (b"", b"[DONE]"),
    "/v1/completions": (b"", b"[DONE]"),
    "/v1/responses": (b"response.", b""),
    "/v1/messages": (b"message_stop", b""),
}
MEMBERS = {
    "/v1/chat/completions": {"id", "choices", "usage"},
    "/v1/completions": {"id", "choices", "usage"},
    "/v1/responses": {"id", "output", "status", "usage"},
    "/v1/messages": {"id", "type", "role", "content", "stop_reason", "usage"},
    "/v1/messages/count_tokens": {"input_tokens"},
    "/v1/models": {"data"},
    "/v1/models/smollm2-135m": {"id"},
}
"""What the answers to each path have at least."""


def pool(engine: str, model: str, aliases: list[str], urls: list[str]) -> str:
    """One pool of the configuration."""
    legs = f"context: {{workers: ['{urls[0]}']}}, generation: {{workers: ['{urls[-1]}']}}"
    workers = legs if engine == "vllm" else f"workers: ['{urls[0]}']"
    return f"        - {{model: {model}, aliases: {json.dumps(aliases)}, engine: {engine}, {workers}}}\n"


@pytest.fixture(scope="module", params=["vllm", "openai"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel with workers for long prompts, whose model has the names that clients know, and some for short ones."""
    engine = request.param
    roles = ("context", "generation") if engine == "vllm" else ("both",)
    text = "plugins:\n  dispatch:\n    config:\n      health: {interval_seconds: 0.2}\n      pools:\n"
    with ExitStack() as stack:
        for model, tokens, aliases in (
            ("smollm2-135m", "60000", ["claude-opus-5-5", "no-such-model"]),
            ("short", "64", []),
        ):
            words = ("--engine", engine, "--model", model, "--context-tokens", tokens)
            urls = [stack.enter_context(stub(*words, "--role", role))[1] for role in roles]
            text += pool(engine, model, aliases, urls)
        started = stack.enter_context(kernel(tmp_path_factory.mktemp("clients"), text))
        until(lambda: len(started.logged("worker.up")) == 2 * len(roles))
        yield started
        assert started.program.stop() == 0
        assert not started.logged("plugin.failed")


def send(served: Kernel, sent: Sent) -> httpx.Response:
    """The answer to a request as it was recorded, but for the 128,000 tokens that Claude Code asks for."""
    limit = (sent.data or {}).get("max_tokens", 0)
    body = sent.body if limit < 1000 else sent.body.replace(b'"max_tokens":%d' % limit, b'"max_tokens":64')
    return httpx.request(sent.method, served.url + sent.target, headers=list(sent.headers), content=body, timeout=60)


@pytest.mark.parametrize("sent", REQUESTS, ids=lambda sent: f"{sent.client} {sent.method} {sent.target} {sent.size}")
def test_every_client_is_answered(served: Kernel, sent: Sent) -> None:
    """With a whole answer or a whole stream in the dialect of its API; what no worker here has is a clean 404."""
    answer = send(served, sent)

    if sent.path == "/v1/embeddings":
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "invalid_request_error"
        return
    assert answer.status_code == 200, answer.text
    if sent.path in LAST and sent.data is not None and sent.data.get("stream"):
        name, data = LAST[sent.path]
        events = split(answer.content)
        assert b"error" not in {name for name, _ in events}
        # one that its limit has cut is incomplete to the plugin that translates, and complete to vLLM
        assert events[-1][0] in ({name} if name != b"response." else {name + b"completed", name + b"incomplete"})
        assert not data or answer.content.endswith(b"data: " + data + b"\n\n")
    elif sent.path in MEMBERS:
        assert {*answer.json()} >= MEMBERS[sent.path]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_prompt_that_is_too_long(served: Kernel, path: str, stream: bool) -> None:
    """A 400 before any byte of a stream, that each client takes for what it is."""
    text = "word " * 500
    data = {"model": "short", "stream": stream, "max_tokens": 4}
    match path:
        case "/v1/completions":
            data |= {"prompt": text}
        case "/v1/responses":
            data = {"model": "short", "stream": stream, "input": text}
        case _:
            data |= {"messages": [{"role": "user", "content": text}]}

    answer = httpx.post(served.url + path, json=data, timeout=60)

    error = answer.json()["error"]
    assert answer.status_code == 400
    if path == "/v1/messages":
        assert answer.json()["type"] == "error"
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("prompt is too long: ")
        assert answer.json()["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    else:
        assert error["code"] == "context_length_exceeded"
        assert "maximum context length" in error["message"]


@pytest.mark.anyio
async def test_many_counts_at_once(served: Kernel) -> None:
    """Claude Code counts 25 prompts at the same time to show how full its context is."""
    sent = next(sent for sent in REQUESTS if "count_tokens" in sent.target and sent.client.startswith("Claude"))
    async with httpx.AsyncClient(base_url=served.url, timeout=60, headers=list(sent.headers)) as client:
        answers = await asyncio.gather(*(client.post(sent.target, content=sent.body) for _ in range(25)))

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["input_tokens"] for answer in answers}) == 1
    assert len({answer.headers["request-id"] for answer in answers}) == 25


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"])
def test_unknown_model(served: Kernel, path: str) -> None:
    """A 404 in the caller's dialect."""
    data = {"model": "nobody", "max_tokens": 4, "messages": [{"role": "user", "content": "x"}], "input": "x"}

    answer = httpx.post(served.url + path, json=data, timeout=60)

    assert answer.status_code == 404
    if "messages" in path:
        assert answer.json()["error"]["type"] == "not_found_error"
    else:
        assert answer.json()["error"]["code"] == "model_not_found"
