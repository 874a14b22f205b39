"""A client that can leave at any moment, a pair of strict workers, and what both sides of the kernel still hold."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from attrs import frozen

from tests.e2e.programs import Kernel, kernel, stub, until

PATH = "/v1/chat/completions"
WORDS = " ".join(f"word{number}" for number in range(70))
CHAT = {"model": "m", "messages": [{"role": "user", "content": WORDS}], "max_tokens": 400}
ROLES = ("context", "generation")

WAITING_ROOM = '''
"""A queue in front of dispatch, in which some requests wait for ever."""

import asyncio

from attrs import frozen

from kernel import CallNext, Exchange, PluginSpec, Reply


@frozen
class WaitingRoom:
    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        if "x-wait" in exchange.headers:
            await asyncio.Event().wait()
        return await call_next(exchange)


PLUGIN = PluginSpec("waiting_room", WaitingRoom, after="disconnect_watch")
'''


@frozen(eq=False)
class Worker:
    """One stub worker."""

    url: str

    def state(self) -> dict[str, Any]:
        """What it holds and has seen."""
        state: dict[str, Any] = httpx.get(f"{self.url}/_stub/state").json()
        return state

    def fault(self, kind: str, **fields: object) -> None:
        """Have it fail."""
        assert httpx.post(f"{self.url}/_stub/faults", json={"kind": kind, **fields}).status_code == 200

    def reset(self) -> None:
        """Have it forget everything."""
        httpx.post(f"{self.url}/_stub/reset")

    def worked(self) -> list[str]:
        """How its requests for work ended, or that they run."""
        return [seen["outcome"] for seen in self.state()["last_requests"] if seen["path"] == PATH]

    def aborts(self) -> int:
        """How often it was told to stop."""
        return sum(1 for seen in self.state()["last_requests"] if seen["path"] == "/abort_request")


@frozen(eq=False)
class Client:
    """One request over a socket."""

    socket: socket.socket

    def read(self, part: bytes) -> bytes:
        """What has come once this was seen."""
        seen = b""
        while part not in seen:
            received = self.socket.recv(65536)
            assert received, seen
            seen += received
        return seen

    def leave(self) -> None:
        """Hang up."""
        self.socket.close()


@frozen(eq=False)
class Stage:
    """A kernel before one context and one generation worker of an engine."""

    engine: str
    kernel: Kernel
    context: Worker
    generation: Worker

    @property
    def workers(self) -> tuple[Worker, Worker]:
        """Both."""
        return self.context, self.generation

    @contextmanager
    def client(self, name: str, headers: str = "", **body: object) -> Iterator[Client]:
        """A client that has sent the whole of its request; `name` is the request's id."""
        raw = json.dumps({**CHAT, **body}).encode()
        address = urlsplit(self.kernel.url)
        head = f"POST {PATH} HTTP/1.1\r\nhost: k\r\nx-request-id: {name}\r\ncontent-length: {len(raw)}\r\n{headers}\r\n"
        with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
            connection.sendall(head.encode() + raw)
            yield Client(connection)

    def counted(self, status: int) -> float:
        """How many requests have ended with a status, whatever their model."""
        series = re.compile(rf'^kernel_requests_total{{.*status="{status}"}} (\S+)$', re.MULTILINE)
        return sum(map(float, series.findall(self.kernel.get("/metrics"))))

    def holds_nothing(self) -> bool:
        """Whether the kernel counts no load and no request, and workers run nothing."""
        gauges = [f'kernel_reservations{{model="m",role="{role}"}}' for role in ROLES]
        gauges.append('kernel_requests_in_flight{endpoint="chat_completions"}')
        return not any(map(self.kernel.metric, gauges)) and not any(
            worker.state()["running"] for worker in self.workers
        )

    def line(self, name: str) -> dict[str, Any] | None:
        """What the access log says of a request."""
        lines = self.kernel.logged("request.finished")
        return next((line for line in lines if line["request_id"] == name), None)

    def settled(self, name: str) -> dict[str, Any]:
        """The request's line in the log, once that is written and nothing is held any more."""
        until(lambda: self.line(name) is not None and self.holds_nothing())
        for worker in self.workers:
            state = worker.state()
            assert (state["violations"], state["leaked_blocks"]) == ({}, 0)
        line = self.line(name)
        assert line is not None
        return line


@contextmanager
def stage(folder: Path, engine: str) -> Iterator[Stage]:
    """A stage that is set up; the plugin `waiting_room` has to be installed."""
    words = ("--engine", engine, "--model", "m", "--token-delay", "0.02", "--role")
    with ExitStack() as stack:
        urls = [stack.enter_context(stub(*words, role, "--side-on-api-port"))[1] for role in ROLES]
        places = [f"{{url: '{url}', bootstrap_port: {urlsplit(url).port}}}" for url in urls]
        legs = ", ".join(f"{role}: {{workers: [{place}]}}" for role, place in zip(ROLES, places, strict=True))
        text = f"""
plugins:
  waiting_room: {{enabled: true}}
  early_start: {{config: {{after_seconds: 0.2, interval_seconds: 0.2}}}}
  dispatch:
    config:
      health: {{interval_seconds: 0.2}}
      retry: {{pause_seconds: 60, max_pause_seconds: 60}}
      pools: [{{model: m, engine: {engine}, {legs}}}]
"""
        served = stack.enter_context(kernel(folder, text))
        until(lambda: len(served.logged("worker.up")) == 2)
        yield Stage(engine, served, *map(Worker, urls))
