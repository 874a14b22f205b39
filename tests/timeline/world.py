"""One kernel with its workers in this process, and one client that asks it a single thing."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import orjson
from attrs import define, evolve, field, frozen

from kernel import ConfigError, KernelMiddleware, OrderLine, Rejection, Runtime
from plugins import STANDARD, parse_document
from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.trace_span import TraceSpan
from tests.timeline.recorder import Recorder, recording, summary

FAULTY = str(Path(__file__).parent / "faulty")
"""A folder with an installed distribution: a plugin that fails on purpose."""


@frozen
class Story:
    """One outcome: what is asked, what goes wrong, and when the client leaves or the kernel is stopped.

    `faults` are (role of the worker, kind, fields); `plugins` is YAML under `plugins:`; `leave` and `shutdown`
    are the event after which the client hangs up, or the kernel interrupts what runs. `keeps_blocks` is for
    outcomes in which no one fetches what the context worker holds until it expires.
    """

    name: str
    path: str = "/v1/chat/completions"
    method: str = "POST"
    body: object = None
    headers: dict[str, str] = field(factory=dict)
    faults: Sequence[tuple[str, str, dict[str, Any]]] = ()
    down: Sequence[str] = ()
    plugins: str = ""
    leave: str | None = None
    shutdown: str | None = None
    keeps_blocks: bool = False


def chat(model: str = "stub", **more: Any) -> dict[str, Any]:
    """A chat request's body."""
    return {"model": model, "messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 4, **more}


@asynccontextmanager
async def workers() -> AsyncIterator[dict[str, Stub]]:
    """The stub workers of both pools, by role."""
    async with AsyncExitStack() as stack:
        yield {
            "both": await stack.enter_async_context(run_stub("openai", model="stub")),
            "context": await stack.enter_async_context(run_stub("trtllm", role="context", model="pair")),
            "generation": await stack.enter_async_context(run_stub("trtllm", role="generation", model="pair")),
        }


def _config(stubs: dict[str, Stub], more: str) -> str:
    return f"""
plugins:
  dispatch:
    config:
      health: {{interval_seconds: 60}}
      read_timeout_seconds: 2
      retry: {{attempts: 0}}
      pools:
        - {{model: stub, engine: openai, workers: ["{stubs["both"].url}"]}}
        - model: pair
          engine: trtllm
          context: {{workers: ["{stubs["context"].url}"]}}
          generation: {{workers: ["{stubs["generation"].url}"]}}
{more}"""


async def replay(story: Story, order: Sequence[OrderLine], stubs: dict[str, Stub]) -> list[str]:
    """Everything that could be seen while one client asked; or why there is no such chain."""
    for stub in stubs.values():
        stub.reset()
    document = parse_document(_config(stubs, story.plugins), "timeline.yaml")
    runtime = Runtime(evolve(STANDARD, order=tuple(order)), lambda: document)
    with recording() as recorder, patch.object(sys, "path", [*sys.path, FAULTY]):
        try:
            await runtime.start()
        except ConfigError as error:
            return [f"no chain: {error}"]
        try:
            await _until(lambda: not runtime.unready())
            span = cast("TraceSpan", runtime.serving.plugins["trace_span"])
            span._state.provider = recorder.tracer_provider()
            for role, kind, fields in story.faults:
                stubs[role].add_fault(kind, **fields)
            for role in story.down:
                stubs[role].kill()
            recorder.events.clear()
            await _ask(story, runtime, recorder)
            for role in stubs.keys() - story.down:
                state = await stubs[role].until(lambda state: state.running == 0)
                assert state.held_blocks + state.leaked_blocks == 0 or story.keeps_blocks, f"{role}: {state}"
            recorder.say(f"kernel holds {len(runtime.serving.exchanges)} exchanges, workers run nothing")
        finally:
            await runtime.stop()
            for role in story.down:
                await stubs[role].restart()
        return list(recorder.events)


async def _until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that no event tells of."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # what is waited for happens in code that knows nothing of tests
            await asyncio.sleep(0.002)


@define(eq=False)
class Client:
    """One client of the middleware, without a socket: sends one request, notes what it gets, and may leave."""

    body: bytes
    recorder: Recorder
    left: asyncio.Event = field(factory=asyncio.Event)
    sent: bool = False
    ended: bool = False
    start: dict[str, Any] = field(factory=dict)
    received: list[bytes] = field(factory=list)

    async def receive(self) -> MutableMapping[str, Any]:
        """What the server hears from the client."""
        if self.sent:
            await self.left.wait()
            return {"type": "http.disconnect"}
        self.sent = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """What the client gets from the server."""
        if self.left.is_set():
            return
        if message["type"] == "http.response.start":
            self.start.update(message)
            self.recorder.say(f"client gets {message['status']}")
            return
        if message.get("body") and not any(self.received):
            self.recorder.say("client gets first bytes")
        self.received.append(message.get("body", b""))
        self.ended = not message.get("more_body", False)

    def sum_up(self) -> None:
        """Say what the client makes of its answer."""
        if self.start and not self.left.is_set():
            content_type = dict(self.start["headers"]).get(b"content-type", b"").decode()
            for line in summary(b"".join(self.received), content_type):
                self.recorder.say(line)
            self.recorder.say("answer is whole" if self.ended else "answer is cut")


async def _ask(story: Story, runtime: Runtime, recorder: Recorder) -> None:
    body = story.body if isinstance(story.body, bytes) else orjson.dumps(story.body)
    raw = [(name.encode(), value.encode()) for name, value in {"x-request-id": "timeline", **story.headers}.items()]
    scope = {"type": "http", "method": story.method, "path": story.path, "headers": raw, "query_string": b""}
    client = Client(body, recorder)

    async def nobody(*_: Any) -> None:
        recorder.say("passed by the kernel")

    asked = asyncio.create_task(KernelMiddleware(nobody, runtime=runtime)(scope, client.receive, client.send))
    if story.leave is not None:
        await _reach(story.leave, recorder, asked)
        recorder.say("client leaves")
        client.left.set()
    if story.shutdown is not None:
        await _reach(story.shutdown, recorder, asked)
        recorder.say("kernel is told to stop")
        runtime.interrupt(_STOPPING)
    done, _ = await asyncio.wait((asked,), timeout=PATIENCE_SECONDS)
    if not done:
        recorder.say("the request does not end")
        asked.cancel()
        await asyncio.wait((asked,))
        return
    asked.result()
    client.sum_up()


async def _reach(event: str, recorder: Recorder, asked: "asyncio.Task[None]") -> None:
    await _until(lambda: asked.done() or any(said.startswith(event) for said in recorder.events))


PATIENCE_SECONDS = 3.0
_STOPPING = Rejection(503, "the server is shutting down", "shutting_down")
