"""A request leaves nothing that refers to itself: that is freed late, with its body, and by a search that costs."""

import asyncio
import gc
from collections.abc import Callable

import pytest
from starlette.applications import Starlette

from bench.steps import SCOPE, Answerer, Chunks, Serving, answer, receive, send
from kernel import Assembly, KernelMiddleware, Reply, StreamReply, build
from plugins import STANDARD, parse_document

pytestmark = pytest.mark.anyio

COUNT = 50

POOL = """
plugins:
  dispatch:
    config:
      pools: [{model: one, engine: openai, workers: ["http://127.0.0.1:9"]}]
"""


def stream() -> Reply:
    """A stream of some events."""
    return StreamReply(Chunks(3), headers=[(b"content-type", b"text/event-stream")])


@pytest.mark.parametrize("reply", [answer, stream])
async def test_an_answer_leaves_no_garbage(reply: Callable[[], Reply]) -> None:
    """All standard plugins are on, as they are without a configuration."""
    built = build(STANDARD, parse_document(POOL, "test"))
    assembly = Assembly(built.places, {**built.plugins, "dispatch": Answerer(reply)}, {}, STANDARD.telemetry)
    app = KernelMiddleware(Starlette(), runtime=Serving(assembly))
    await app(SCOPE, receive, send)
    await asyncio.sleep(0)

    gc.collect()
    gc.disable()
    try:
        for _ in range(COUNT):
            await app(SCOPE, receive, send)
        await asyncio.sleep(0)
        found = gc.collect()
    finally:
        gc.enable()

    assert found < COUNT
