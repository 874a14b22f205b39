"""A kernel with workers that answer as prompts ask: pairs that speak every API, and workers that only chat."""

import json
import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from attrs import define, field

from plugins.dispatch.embedded.stub.command import main
from tests.e2e.programs import START_SECONDS, Kernel, kernel, stub, until

WAYS: Final = ("pair", "chat")
"""How a model is served: by a vLLM pair that answers every API, or by a worker that only has chats."""

LONGEST: Final = 64
"""Tokens of the longest prompt that the models called `short` take."""

NURSERY: Final = multiprocessing.get_context("forkserver")
"""Where workers are started from whose imports are done: there are many that live for one request only."""

EXIT_FAULT: Final = 70
"""With what a stub ends that dies on command."""


def words(way: str, model: str, role: str = "both", tokens: int = 400_000) -> tuple[str, ...]:
    """The command line of a worker."""
    engine = "vllm" if way == "pair" else "openai"
    told = ("--engine", engine, "--model", model, "--role", role, "--context-tokens", str(tokens))
    return (*told, "--token-delay", "0.005", "--allow-script")


def post(url: str, body: object) -> None:
    """Tell a stub something."""
    urlopen(Request(url, json.dumps(body).encode(), {"content-type": "application/json"}), timeout=10).close()


def state(url: str) -> dict[str, Any]:
    """What a stub says of itself."""
    with urlopen(url + "/_stub/state", timeout=10) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


@define(eq=False)
class Mortal:
    """A worker that is started for one request, and dies of it; others cannot get its port meanwhile."""

    way: str
    kept: socket.socket = field(factory=socket.socket)

    def __attrs_post_init__(self) -> None:
        self.kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.kept.bind(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self.kept.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def alive(self, ready: Callable[[], bool], after: int) -> Iterator[None]:
        """Be there, until so many events of a stream are sent."""
        role = "generation" if self.way == "pair" else "both"
        told = (*words(self.way, f"mortal-{self.way}", role), "--port", str(self.port))
        process = NURSERY.Process(target=main, args=(told,), daemon=True)
        process.start()
        try:
            until(ready)
            post(self.url + "/_stub/faults", {"kind": "exit", "after": after})
            yield
            process.join(START_SECONDS)
            assert process.exitcode == EXIT_FAULT
        finally:
            process.kill()
            process.join(START_SECONDS)
            process.close()


@define(eq=False)
class World:
    """The kernel, the workers that live all the time by their models, and those that die."""

    kernel: Kernel
    workers: dict[str, list[str]]
    mortals: dict[str, Mortal]

    @contextmanager
    def mortal(self, way: str, after: int = 6) -> Iterator[str]:
        """A model whose worker dies after so many events of a stream."""
        model = f"mortal-{way}"
        series = f'kernel_workers_up{{model="{model}",role="generation"}}'
        with self.mortals[way].alive(lambda: self.kernel.metric(series) == 1, after):
            yield model

    def finished(self) -> list[dict[str, Any]]:
        """The lines of the access log so far."""
        return self.kernel.logged("request.finished")

    def idle(self) -> bool:
        """Whether nothing is held for anybody any more, here or at a worker."""
        metrics = self.kernel.get("/metrics")
        held = [
            line
            for line in metrics.splitlines()
            if line.startswith(("kernel_requests_in_flight{", "kernel_reservations{"))
        ]
        urls = [url for urls in self.workers.values() for url in urls]
        return all(line.endswith(" 0.0") for line in held) and not any(state(url)["running"] for url in urls)


def legs(way: str, context: str, generation: str) -> str:
    """The workers of a pool."""
    if way == "chat":
        return f"engine: openai, workers: ['{generation}']"
    return f"engine: vllm, context: {{workers: ['{context}']}}, generation: {{workers: ['{generation}']}}"


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Everything, started; in the end nothing is held and no plugin has failed."""
    workers: dict[str, list[str]] = {}
    mortals = {way: Mortal(way) for way in WAYS}
    lines = []
    with ExitStack() as stack:
        for way in WAYS:
            roles = ("context", "generation") if way == "pair" else ("both",)
            for model, tokens in ((way, 400_000), (f"short-{way}", LONGEST)):
                urls = [stack.enter_context(stub(*words(way, model, role, tokens)))[1] for role in roles]
                workers[model] = urls
                lines.append(f"{{model: {model}, {legs(way, urls[0], urls[-1])}}}")
            model = f"mortal-{way}"
            first = stack.enter_context(stub(*words(way, model, "context")))[1] if way == "pair" else ""
            stack.callback(mortals[way].kept.close)
            lines.append(f"{{model: {model}, {legs(way, first, mortals[way].url)}}}")
        pools = "".join(f"        - {line}\n" for line in lines)
        health = "health: {interval_seconds: 0.2, failures: 1, slow_start_seconds: 0}"
        text = f"plugins:\n  dispatch:\n    config:\n      {health}\n      pools:\n{pools}"
        started = World(stack.enter_context(kernel(folder, text)), workers, mortals)
        until(lambda: len(started.kernel.logged("worker.up")) >= sum(map(len, workers.values())))
        yield started
        until(started.idle)
        for url in (url for urls in workers.values() for url in urls):
            assert not state(url)["violations"]
        assert started.kernel.program.stop() == 0
        assert not started.kernel.logged("plugin.failed")
