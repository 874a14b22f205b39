"""A client that leaves stops both workers of a real vLLM pair, whatever they were doing for it."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.live.pair import IDLE_SECONDS, Front, Pair
from tests.live.questions import CHAT, SECONDS, fresh_prompt
from tests.live.worker import Worker, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

MANY = 1200  # tokens: an answer of a minute or so
LONG = "and kindly, " * 600  # a prompt of some seconds


@contextmanager
def asked(url: str, body: dict[str, Any]) -> Iterator[None]:
    """A request whose client leaves at the end of the block."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    content = json.dumps(body).encode()
    head = f"POST {CHAT.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=SECONDS) as client:
        client.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        yield


def made(worker: Worker) -> float:
    """How many tokens a worker has made so far."""
    return worker.metric("vllm:generation_tokens_total")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_leaves_in_the_context_phase(stream: bool, served: Front, pair: Pair) -> None:
    """The context worker stops, the generation worker was never asked, and the log says that the client left."""
    before = pair.generation.metric("vllm:prompt_tokens_total")
    body = CHAT.body(fresh_prompt() + LONG, MANY) | {"stream": stream}
    with asked(served.url, body):
        until(lambda: pair.context.busy() > 0, IDLE_SECONDS)
    until(lambda: len(served.finished()) == 1, IDLE_SECONDS)
    pair.settle()

    assert pair.generation.metric("vllm:prompt_tokens_total") == before
    assert served.finished()[0]["status"] == 499
    until(served.idle, IDLE_SECONDS)


def test_a_client_that_leaves_in_the_generation_phase(served: Front, pair: Pair) -> None:
    """The generation worker stops long before the answer would be complete."""
    before = made(pair.generation)
    with asked(served.url, CHAT.body(fresh_prompt(), MANY) | {"ignore_eos": True}):
        until(lambda: made(pair.generation) > before, SECONDS)
    until(lambda: len(served.finished()) == 1, IDLE_SECONDS)
    pair.settle()

    assert made(pair.generation) - before < MANY
    assert served.finished()[0]["status"] == 499
    until(served.idle, IDLE_SECONDS)


def test_a_client_that_leaves_a_stream(served: Front, pair: Pair) -> None:
    """The same in the middle of a stream."""
    before = made(pair.generation)
    body = CHAT.body(fresh_prompt(), MANY) | {"ignore_eos": True, "stream": True}
    with httpx.stream("POST", served.url + CHAT.path, json=body, timeout=SECONDS) as answer:
        lines = answer.iter_lines()
        assert sum(1 for _ in zip(range(6), lines, strict=False)) == 6
    until(lambda: len(served.finished()) == 1, IDLE_SECONDS)
    pair.settle()

    assert made(pair.generation) - before < MANY
    assert served.finished()[0]["outcome"] == "client_gone"
    until(served.idle, IDLE_SECONDS)


def test_the_pair_works_on_after_departures(served: Front, pair: Pair) -> None:
    """Many clients that leave at once leave nothing behind: the next one is served from a KV cache handed over."""
    for _ in range(2):
        with asked(served.url, CHAT.body(fresh_prompt(), MANY)), asked(served.url, CHAT.body(fresh_prompt(), MANY)):
            until(lambda: pair.context.busy() > 0 or pair.generation.busy() > 0, IDLE_SECONDS)
    pair.settle()
    before = pair.counts()
    answer = CHAT.ask(served.url, fresh_prompt())

    assert answer.status_code == 200
    assert pair.counts().fetched > before.fetched
    assert pair.counts().computed_by_generation == before.computed_by_generation
