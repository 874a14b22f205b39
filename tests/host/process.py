"""A worker in a thread and a kernel in a process of its own, for tests of signals and several processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from attrs import define, field

from plugins.host.instance import Instance, State, birth_mark, find_instances
from tests.host.wire import DEADLINE_SECONDS, Answer, Client, request, until

CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'

CHAT = "/v1/chat/completions"


@define(eq=False)
class FakeWorker:
    """An OpenAI-compatible worker whose streams go on until `released`; `asked` counts the requests."""

    url: str = ""
    released: asyncio.Event = field(factory=asyncio.Event)
    asked: int = 0
    loop: asyncio.AbstractEventLoop | None = None

    def release(self) -> None:
        """Let every stream end."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.released.set)

    async def chat(self, asked: web.Request) -> web.StreamResponse:
        """Answer, or begin a stream."""
        body = await asked.json()
        self.asked += 1
        if not body.get("stream"):
            return web.json_response({"id": "c", "object": "chat.completion", "choices": []})
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(asked)
        await reply.write(CHUNK)
        await self.released.wait()
        await reply.write(CHUNK + b"data: [DONE]\n\n")
        return reply

    async def health(self, _asked: web.Request) -> web.Response:
        """Be well."""
        return web.Response()


@contextmanager
def fake_worker() -> Iterator[FakeWorker]:
    """A worker that answers for the length of a `with` block."""
    worker, started = FakeWorker(), threading.Event()
    ended = asyncio.Event()

    async def serve() -> None:
        application = web.Application()
        application.router.add_post(CHAT, worker.chat)
        application.router.add_get("/health", worker.health)
        runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        worker.url = "http://{}:{}".format(*runner.addresses[0][:2])
        worker.loop = asyncio.get_running_loop()
        started.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(DEADLINE_SECONDS)
    try:
        yield worker
    finally:
        assert worker.loop is not None
        worker.loop.call_soon_threadsafe(ended.set)
        thread.join(DEADLINE_SECONDS)


def config_text(worker: FakeWorker, model: str = "tiny", more: str = "") -> str:
    """A configuration with one model on one worker."""
    return f"""\
listen: 127.0.0.1:0
grace_seconds: 0.3
{more}
plugins:
  dispatch:
    config:
      pools:
        - model: {model}
          workers: ["{worker.url}"]
"""


@define(eq=False)
class Kernel:
    """A running `kernel run`."""

    process: subprocess.Popen[str]
    config: Path | None

    def instance(self) -> Instance:
        """What it says of itself, once it serves with all its processes."""

        def found() -> Instance | None:
            assert self.process.poll() is None, self.errors()
            mine = [each for each in find_instances(any_config=True) if each.state.pid == self.process.pid]
            return mine[0] if mine and len(mine[0].processes) == mine[0].state.workers else None

        return until(found, "the instance")

    def serving(self) -> tuple[State, ...]:
        """The processes that serve."""
        return self.instance().processes

    def client(self) -> Client:
        """A new connection to it."""
        host, _, port = self.instance().state.listen.rpartition(":")
        return Client.to((host, int(port)))

    def ask(self, path: str = CHAT, body: Any = None, method: str = "POST") -> Answer:
        """One request on a connection of its own."""
        data = json.dumps(body).encode() if body is not None else b""
        (answer,) = self.client().send(request(path, data, "connection: close", method=method)).answers()
        return answer

    def models(self) -> list[str]:
        """The models that it serves."""
        return [model["id"] for model in json.loads(self.ask("/v1/models", method="GET").body)["data"]]

    def open_stream(self, model: str = "tiny") -> Client:
        """A stream of which the first chunk has come."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        client = self.client().send(request(CHAT, json.dumps(body).encode()))
        client.read_until(b'"content":"hi"')
        return client

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that was started."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; gives the exit code."""
        return self.process.wait(DEADLINE_SECONDS)

    def errors(self) -> str:
        """What it has written to standard error so far."""
        assert self.config is not None
        return Path(f"{self.config}.err").read_text()

    def logged(self) -> list[dict[str, Any]]:
        """Its log lines so far, as their values."""
        return [json.loads(line) for line in self.errors().splitlines() if line.startswith("{")]

    def events(self) -> list[str]:
        """Their events."""
        return [line["event"] for line in self.logged()]


@contextmanager
def running(config: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[Kernel]:
    """A kernel that runs for the length of a `with` block."""
    with start(config, *options, environment=environment) as process:
        kernel = Kernel(process, config)
        kernel.instance()
        yield kernel


@contextmanager
def start(config: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """The process of `kernel run CONFIG`, killed at the end if it has not ended by then."""
    command = [sys.executable, "-m", "plugins.host", "run", str(config), "--log-format", "json", *options]
    with Path(f"{config}.err").open("w") as errors:
        process = subprocess.Popen(
            command, text=True, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **(environment or {})}
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def alive(pids: Sequence[int]) -> list[int]:
    """Those of the processes that have not ended."""
    return [pid for pid in pids if birth_mark(pid) is not None]
