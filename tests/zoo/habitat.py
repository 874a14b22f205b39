"""Where the broken plugins live: the standard chain around a terminal plugin that needs no workers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from attrs import define, frozen

from kernel import (
    CallNext,
    ConfigError,
    DataReply,
    Exchange,
    KernelMiddleware,
    OrderLine,
    PluginSpec,
    Reply,
    Runtime,
    Standard,
    StreamReply,
)
from plugins.configuration import Document
from plugins.endpoints import ENDPOINTS
from plugins.order import STANDARD_ORDER
from plugins.slots import STREAM
from tests.kernel.support import Request, Shelf

CHUNKS = (b'data: {"choices": []}\n\n', b'data: {"choices": []}\n\n', b"data: [DONE]\n\n")
INTERNAL = {
    "error": {"message": "internal server error", "type": "server_error", "param": None, "code": "internal_error"}
}


@frozen
class Keeper:
    """Answers in place of dispatch."""

    async def __call__(self, exchange: Exchange, _call_next: CallNext) -> Reply:
        """Answer data, or a stream of events."""
        if not exchange[STREAM]:
            return DataReply({"answer": True})

        async def source() -> AsyncIterator[bytes]:
            for chunk in CHUNKS:
                yield chunk

        return StreamReply(source(), 200, [(b"content-type", b"text/event-stream")])


KEEPER = PluginSpec("keeper", Keeper, needs=(STREAM,))


async def nowhere(*_: object) -> None:
    """The application behind, which nothing may reach."""
    raise AssertionError("passed by")


@define
class Habitat:
    """One runtime with one animal in it, at the place that the animal asks for."""

    shelf: Shelf
    animal: str | None = None
    """Where its spec is, as in an entry point."""
    text: str = "plugins: {animal: {}}"

    def __attrs_post_init__(self) -> None:
        self.shelf.install("the-keeper", {"keeper": "tests.zoo.habitat:KEEPER"})
        if self.animal is not None:
            self.shelf.install("the-animal", {"animal": f"tests.zoo.broken.{self.animal}"})

    def runtime(self) -> Runtime:
        """A runtime that is not started."""
        order = (*STANDARD_ORDER[:-1], OrderLine("keeper", "answers", required=True))
        return Runtime(Standard(order=order, endpoints=ENDPOINTS), lambda: Document.parse(self.text, "kernel.yaml"))


def request(runtime: Runtime, *, bite: str | None = None, stream: bool = False) -> Request:
    """A chat request, at which the animal may bite."""
    headers = () if bite is None else (("x-bite", bite),)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    app = KernelMiddleware(nowhere, runtime=runtime)
    return Request(app, "/v1/chat/completions", json.dumps(body).encode(), headers=headers)


async def ask(runtime: Runtime, *, bite: str | None = None, stream: bool = False) -> Request:
    """The answer to a chat request."""
    return await request(runtime, bite=bite, stream=stream).run()


async def assert_serves(runtime: Runtime) -> None:
    """The next requests are answered as if nothing had been, and nothing is held."""
    whole = await ask(runtime)
    assert (whole.status, json.loads(whole.text)) == (200, {"answer": True})
    streamed = await ask(runtime, stream=True)
    assert (streamed.status, streamed.text, streamed.ended) == (200, b"".join(CHUNKS).decode(), True)
    assert runtime.serving.exchanges == set()


def error_of(answer: Request) -> Any:
    """The JSON of an answer."""
    return json.loads(answer.text)


async def problem_of(habitat: Habitat, kind: type[ConfigError] = ConfigError) -> str:
    """The one problem for which a start is refused, and a reload too, with nothing changed by it."""
    with pytest.raises(kind) as caught:
        await habitat.runtime().start()
    (problem,) = caught.value.problems
    enabled, habitat.text = habitat.text, ""
    runtime = habitat.runtime()
    await runtime.start()
    before = runtime.serving
    habitat.text = enabled
    assert await runtime.reload() == (problem,)
    assert runtime.serving is before
    await assert_serves(runtime)
    return problem
