"""A worker of a real vLLM pair that is killed costs a right error or a right answer, soon, and nothing else."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live.pair import IDLE_SECONDS, Expected, Front, Pair, front
from tests.live.questions import CHAT, CHAT_STREAM, SECONDS, fresh_prompt
from tests.live.worker import Worker, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

SOON = 60.0  # seconds: a generation worker looks for a dead context worker for five, on a machine that is busy
MANY = 1200
LONG = "and kindly, " * 600


@contextmanager
def halted(worker: Worker) -> Iterator[None]:
    """A worker that takes connections and says nothing for the length of the block."""
    assert worker.process is not None
    os.killpg(worker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(worker.process.pid, signal.SIGCONT)


@contextmanager
def asking(url: str, *bodies: dict[str, Any]) -> Iterator[list["Future[httpx.Response]"]]:
    """Requests at the same time, and their answers when they have come."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        yield [pool.submit(httpx.post, url + CHAT.path, json=body, timeout=SECONDS) for body in bodies]


def check_error(answer: httpx.Response) -> None:
    """It is an error of the server's side in the API's envelope, which names no worker."""
    assert answer.status_code in (500, 502, 503, 504), answer.text
    assert answer.json()["error"]["message"]
    assert "127.0.0.1" not in answer.text
    assert "remote_" not in answer.text


def both_ways(tokens: int, more: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """A chat and a streamed chat of at least as many tokens."""
    chat, stream = (question.body(fresh_prompt() + more, tokens) for question in (CHAT, CHAT_STREAM))
    return chat | {"ignore_eos": True}, stream | {"ignore_eos": True}


def test_a_generation_worker_killed_at_work(served: Front, pair: Pair) -> None:
    """A stream has whole events and then an error, no finish reason and no good end; a whole answer is an error."""
    seen: list[str] = []
    chat, stream = both_ways(MANY)
    before = pair.generation.fetched()
    with asking(served.url, chat) as (coming,):
        until(lambda: pair.generation.fetched() > before, SECONDS)
        with httpx.stream("POST", served.url + CHAT.path, json=stream, timeout=SECONDS) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    seen.append(line.removeprefix("data: "))
                if len(seen) == 4:
                    pair.generation.kill()
        check_error(coming.result(SOON))
    *events, last = (json.loads(line) for line in seen)

    assert last["error"]["message"]
    assert "127.0.0.1" not in seen[-1]
    assert len(events) >= 4
    assert not any("error" in event or event["choices"][0]["finish_reason"] for event in events)
    until(lambda: not pair.context.busy(), IDLE_SECONDS)


def test_a_context_worker_killed_at_work(served: Front, pair: Pair) -> None:
    """The client is told at once, and the generation worker was never asked; so it is for those who come later."""
    before = pair.generation.metric("vllm:prompt_tokens_total")
    with asking(served.url, *both_ways(8, LONG)) as coming:
        until(lambda: pair.context.busy() == 2, SECONDS)
        pair.context.kill()
        for answer in coming:
            check_error(answer.result(SOON))
    for body in both_ways(8):
        later = httpx.post(served.url + CHAT.path, json=body, timeout=SOON)
        check_error(later)
        assert later.status_code == 503
        assert int(later.headers["retry-after"]) >= 1

    assert pair.generation.metric("vllm:prompt_tokens_total") == before


def test_a_context_worker_killed_between_the_phases(served: Front, pair: Pair) -> None:
    """Its KV cache cannot be fetched: the client is told with a status, also where a stream was asked for."""
    CHAT.ask(served.url, fresh_prompt(), 2)  # the workers of the pair know each other
    done = pair.context.metric("vllm:request_success_total")
    with asking(served.url, *both_ways(8)) as coming:
        with halted(pair.generation):
            until(lambda: pair.context.metric("vllm:request_success_total") == done + 2, SECONDS)
            threading.Event().wait(0.2)  # the answers are on their way to the kernel, which asks the halted worker
            pair.context.kill()
        for answer in coming:
            check_error(answer.result(SOON))
    pair.settle()


def test_generation_workers_serve_alone_where_they_may(
    pair: Pair, tmp_path: Path, expected: dict[str, Expected]
) -> None:
    """Once the context worker is known to be gone, the answer is right all the same."""
    known = expected[CHAT.name]
    with front(pair, tmp_path, "{alone_without_context: true}") as served:
        pair.context.kill()
        until(lambda: bool(served.kernel.logged("worker.down")), IDLE_SECONDS)
        answer = CHAT.ask(served.url, known.words)

    assert answer.status_code == 200
    assert CHAT.text(answer) == known.text
