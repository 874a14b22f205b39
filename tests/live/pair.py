"""A context and a generation worker, the kernel in front of them, and what one worker alone says to the same."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from attrs import define, frozen

from plugins.endpoints import GENERATIVE
from tests.e2e.programs import Kernel, kernel
from tests.live.questions import QUESTIONS, fresh_prompt
from tests.live.vllm import VllmWorker
from tests.live.worker import MODEL, Worker, until

IDLE_SECONDS: Final = 120.0
SERVED_PATHS: Final = frozenset(endpoint.path for endpoint in GENERATIVE)
ASKED: Final = tuple(question for question in QUESTIONS if question.path in SERVED_PATHS)


@frozen
class Expected:
    """A prompt, how many tokens it has, and the text with which one worker answers it."""

    words: str
    tokens: float
    text: str


def ask_aggregated(worker: Worker) -> dict[str, Expected]:
    """The answer to each question, by its name; every one has a prompt of its own, so that nothing is cached."""
    found = {}
    for question in ASKED:
        words, before = fresh_prompt(), worker.computed()
        answer = question.ask(worker.url, words)
        assert answer.status_code == 200, answer.text
        found[question.name] = Expected(words, worker.computed() - before, question.text(answer))
    return found


@frozen
class Counts:
    """What the workers of a pair have done so far."""

    computed_by_context: float
    fetched: float
    computed_by_generation: float


@define(eq=False)
class Pair:
    """A context and a generation worker."""

    context: VllmWorker
    generation: VllmWorker

    def revive(self) -> None:
        """Start again what has ended."""
        gone = [worker for worker in (self.context, self.generation) if not worker.running()]
        for worker in gone:
            worker.start()
        for worker in gone:
            worker.wait()

    def settle(self) -> float:
        """Wait until those that run have nothing to do, and give the seconds that it took."""
        running = [worker for worker in (self.context, self.generation) if worker.running()]
        return until(lambda: not any(worker.busy() for worker in running), IDLE_SECONDS)

    def counts(self) -> Counts:
        """What both have done so far."""
        return Counts(self.context.computed(), self.generation.fetched(), self.generation.computed())


@define(eq=False)
class Front:
    """The kernel in front of a pair."""

    kernel: Kernel

    @property
    def url(self) -> str:
        """Where it serves."""
        return self.kernel.url

    def healthy(self) -> bool:
        """Whether each role has a worker."""
        return httpx.get(f"{self.url}/health", timeout=10).status_code == 200

    def idle(self) -> bool:
        """Whether it holds nothing for any request."""
        roles = (f'kernel_reservations{{model="{MODEL}",role="{role}"}}' for role in ("context", "generation"))
        flights = (f'kernel_requests_in_flight{{endpoint="{endpoint.name}"}}' for endpoint in GENERATIVE)
        return not any(self.kernel.metric(series) for series in (*roles, *flights))

    def finished(self) -> list[dict[str, Any]]:
        """What it logged of each request that is over."""
        return self.kernel.logged("request.finished")


@contextmanager
def front(pair: Pair, folder: Path, handoff: str = "{}", *more: str) -> Iterator[Front]:
    """A kernel in front of a vLLM pair, and of more pools."""
    with serve(pair.context, pair.generation, folder, "{type: vllm, connector: nixl}", handoff, *more) as served:
        yield served


@contextmanager
def serve(
    context: Worker, generation: Worker, folder: Path, engine: str, handoff: str = "{}", *more: str
) -> Iterator[Front]:
    """A kernel that has found both workers well, ended with the block as an operator would end it."""
    text = f"""plugins:
  dispatch:
    config:
      health: {{interval_seconds: 1, failures: 2}}
      pools:
        - model: {MODEL}
          engine: {engine}
          handoff: {handoff}
          context: {{workers: {json.dumps([context.url])}, policy: least_loaded}}
          generation: {{workers: {json.dumps([generation.url])}, policy: least_loaded}}
"""
    text += "".join(f"        - {pool}\n" for pool in more)
    with kernel(folder, text) as running:
        served = Front(running)
        try:
            until(served.healthy, IDLE_SECONDS)
            yield served
            until(served.idle, IDLE_SECONDS)
            assert running.program.stop() == 0
        finally:
            sys.stdout.writelines(running.program.lines)  # shown with a test that fails
