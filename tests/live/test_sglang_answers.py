"""A real SGLang pair behind the kernel answers as one worker does, from a KV cache that was handed over."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.live.pair import ASKED, IDLE_SECONDS, Expected, Front, ask_aggregated, serve
from tests.live.questions import CHAT, CHAT_STREAM, Question, fresh_prompt
from tests.live.sglang import SglangWorker, check_libraries
from tests.live.worker import free_port, started, until

pytestmark = [pytest.mark.live_sglang, pytest.mark.timeout(1200)]

WARM = 8  # tokens: a worker of a pair is warmed up with another prompt, whose beginning it has cached


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the workers' logs."""
    check_libraries()
    return tmp_path_factory.mktemp("sglang")


@pytest.fixture(scope="module")
def expected(workshop: Path) -> dict[str, Expected]:
    """What one worker that does everything answers to each question; it has ended before the pair starts."""
    worker = SglangWorker("aggregated", None, workshop)
    with started(worker):
        return ask_aggregated(worker)


@pytest.fixture(scope="module")
def pair(expected: dict[str, Expected], workshop: Path) -> Iterator[tuple[SglangWorker, SglangWorker]]:
    """A context and a generation worker."""
    port = free_port()
    context = SglangWorker("context", "context", workshop, bootstrap_port=port)
    generation = SglangWorker("generation", "generation", workshop, bootstrap_port=port)
    with started(context, generation):
        yield context, generation


@pytest.fixture
def served(pair: tuple[SglangWorker, SglangWorker], tmp_path: Path) -> Iterator[Front]:
    """A kernel in front of the pair, whose workers are idle when the test is over."""
    context, generation = pair
    engine = f"{{type: sglang, bootstrap_port: {context.bootstrap_port}}}"
    with serve(context, generation, tmp_path, engine) as kernel:
        yield kernel
    until(lambda: not any(worker.busy() for worker in pair), IDLE_SECONDS)


@pytest.mark.parametrize("question", ASKED, ids=lambda question: question.name)
def test_the_answer_is_that_of_one_worker(
    question: Question, served: Front, pair: tuple[SglangWorker, SglangWorker], expected: dict[str, Expected]
) -> None:
    """Token for token; the generation worker computed nothing of the prompt, and the client learns of no worker."""
    known, (context, generation) = expected[question.name], pair
    before = context.computed(), generation.computed()
    answer = question.ask(served.url, known.words)

    assert answer.status_code == 200, answer.text
    assert question.text(answer) == known.text
    assert known.text
    assert abs(context.computed() - before[0] - known.tokens) <= WARM
    assert generation.computed() == before[1]
    assert "bootstrap_" not in answer.text


def test_a_prompt_that_is_too_long_is_an_error_of_the_clients(served: Front) -> None:
    """Neither worker waits for the other one afterwards."""
    for more in ({}, {"stream": True}):
        answer = CHAT.ask(served.url, "word " * 3000, **more)

        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["message"]


def test_a_client_that_leaves_stops_both_workers(served: Front, pair: tuple[SglangWorker, SglangWorker]) -> None:
    """In mid-stream; the generation worker would go on for a thousand tokens."""
    body = CHAT_STREAM.body(fresh_prompt(), 1200) | {"ignore_eos": True}
    with httpx.stream("POST", served.url + CHAT_STREAM.path, json=body, timeout=60) as answer:
        assert answer.status_code == 200
        next(answer.iter_bytes())
    seconds = until(lambda: not any(worker.busy() for worker in pair), IDLE_SECONDS)

    assert seconds < IDLE_SECONDS
