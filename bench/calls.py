"""Counts the calls of functions that the kernel makes for one request and for one token; no clock is involved.

The kernel serves in the main thread as `kernel run` does, and everything else goes step by step: a worker answers once
the kernel has done all that it does about what came before. So a request takes the same path each time, on any machine.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from attrs import define, field

from bench.bodies import DONE, make_answer, make_context_answer, make_event, make_request
from bench.lockstep import Wire, Worker, post
from bench.stages import STAGES
from bench.tally import Steps
from plugins.host.listener import bind
from plugins.host.logs import configure_logs
from plugins.host.serve import Service
from plugins.host.source import Source

PAIRS: Final = ("trtllm", "vllm", "sglang")
"""Engines with a worker for each phase."""

TOKEN: Final = "token"
KINDS: Final = ("one_leg", *PAIRS, TOKEN)
"""What is counted: a request to one worker, one to a pair of each engine, and a token of a stream from one worker."""

WARMUP: Final = 10
ROUNDS: Final = 30

Calls = dict[str, dict[str, int]]
"""For each kind the calls of each stage, in the order of `STAGES`."""

_BODY_BYTES: Final = 500
_SECONDS: Final = 110.0
_ROOT: Final = Path(__file__).parents[1]


def _workers() -> dict[str, Worker]:
    return {engine: Worker() for engine in PAIRS}


@define(eq=False)
class Bench:
    """The client and the workers of a kernel."""

    one: Worker = field(factory=Worker)
    context: Mapping[str, Worker] = field(factory=_workers)
    generation: Mapping[str, Worker] = field(factory=_workers)

    @property
    def configuration(self) -> str:
        """What the kernel is given: the workers, and nothing else."""
        pools = [f"{{model: one_leg, engine: openai, workers: [{self.one.url}]}}"]
        for engine in PAIRS:
            context = f"context: {{workers: [{self.context[engine].url}]}}"
            generation = f"generation: {{workers: [{self.generation[engine].url}]}}"
            pools.append(f"{{model: {engine}, engine: {engine}, {context}, {generation}}}")
        return f"listen: 127.0.0.1:0\nplugins: {{dispatch: {{config: {{pools: [{', '.join(pools)}]}}}}}}"

    def count(self, steps: Steps, port: int) -> Calls:
        """The calls of each kind."""
        client = Wire(socket.create_connection(("127.0.0.1", port)))
        taken = {kind: list(self._ask(steps, client, kind)) for kind in KINDS if kind != TOKEN}
        taken[TOKEN] = list(self._stream(steps, client))
        client.close()
        return {kind: least(calls[WARMUP:]) for kind, calls in taken.items()}

    def _ask(self, steps: Steps, client: Wire, kind: str) -> Iterator[Counter[str]]:
        request = post(make_request(kind, _BODY_BYTES, stream=False))
        answer = getattr(self, f"_answer_{kind}")
        for _ in range(WARMUP + ROUNDS):
            steps.start()
            client.send(request)
            answer(steps)
            head, body = client.read_message()
            if not head.startswith(b"HTTP/1.1 200 ") or body != make_answer():
                raise RuntimeError(f"the answer is not the worker's: {head!r} {body!r}")
            yield steps.stop()

    def _stream(self, steps: Steps, client: Wire) -> Iterator[Counter[str]]:
        client.send(post(make_request("one_leg", _BODY_BYTES, stream=True)))
        asked = self.one.take()
        asked.begin()
        event = make_event()
        for _ in range(WARMUP + ROUNDS):
            steps.start()
            asked.say(event)
            if not client.read_until(event):
                raise RuntimeError("the stream ended early")
            yield steps.stop()
        asked.say(DONE)
        asked.say(b"")
        client.read_until(b"\r\n0\r\n\r\n")

    def _answer_one_leg(self, _: Steps) -> None:
        self.one.take().answer(make_answer())

    def _answer_trtllm(self, steps: Steps) -> None:
        self._relay(steps, "trtllm")

    def _answer_vllm(self, steps: Steps) -> None:
        self._relay(steps, "vllm")

    def _answer_sglang(self, steps: Steps) -> None:
        context, generation = self.context["sglang"].take(), self.generation["sglang"].take()
        steps.settle()
        context.answer(make_context_answer("sglang"))
        steps.settle()
        generation.answer(make_answer())

    def _relay(self, steps: Steps, engine: str) -> None:
        self.context[engine].take().answer(make_context_answer(engine))
        steps.settle()
        self.generation[engine].take().answer(make_answer())


def least(taken: list[Counter[str]]) -> dict[str, int]:
    """The breakdown of a round in which nothing came between: a timer or a probe only adds to the odd one."""
    calls = min(taken, key=Counter.total)
    return {stage: calls[stage] for stage in STAGES if calls[stage]}


def serve_and_count() -> Calls:
    """Serve in this process, and count.

    Raises:
        RuntimeError: an answer was not the expected one.
    """
    bench = Bench()
    source = Source(None, bench.configuration, "bench")
    settings = source.load().settings()
    configure_logs(settings.log.level, settings.log.format)
    listener = bind(*settings.address)
    counted: Calls = {}

    def count(steps: Steps) -> None:
        try:
            counted.update(bench.count(steps, listener.getsockname()[1]))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def begin() -> None:
        steps = Steps(asyncio.get_running_loop())
        threading.Thread(target=count, args=(steps,), daemon=True).start()

    Service(source, settings, listener).run(begin)
    return counted


def count_calls() -> Calls:
    """What `serve_and_count` returns in a process of its own.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    command = [sys.executable, "-m", "bench.calls"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROMETHEUS_MULTIPROC")}
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, timeout=_SECONDS, check=False)
    counted: Calls = json.loads(done.stdout or b"{}")
    if set(counted) != set(KINDS):
        raise RuntimeError(f"nothing was counted:\n{done.stderr.decode()[-2000:]}")
    return counted


if __name__ == "__main__":
    print(json.dumps(serve_and_count()))
