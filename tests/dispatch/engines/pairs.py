"""Pairs of strict stub workers behind dispatch, and what must hold of both when a request is over."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from attrs import frozen

from plugins.dispatch.config import ModelConfig, RoleConfig
from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.dispatch.engine import Engine
from plugins.dispatch.handoffs import HandoffConfig
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.worker_config import WorkerConfig
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS
from tests.dispatch.support import Answer, ask, exchange_of, loads, running, single, until

WORDS = " ".join(f"word{number}" for number in range(70))
CHAT: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": WORDS}], "max_tokens": 9}
COMPLETION: Mapping[str, Any] = {"model": "m", "prompt": WORDS, "max_tokens": 9}
ASKED = [(CHAT_COMPLETIONS, CHAT), (COMPLETIONS, COMPLETION)]


@frozen
class Pair:
    """One context worker, one generation worker, and dispatch."""

    context: Stub
    generation: Stub
    dispatch: Dispatch

    async def ask(self, data: Mapping[str, Any], endpoint: Any = CHAT_COMPLETIONS, **extra: Any) -> Answer:
        """Send one request."""
        return await ask(self.dispatch, exchange_of(orjson.dumps({**data, **extra}), endpoint=endpoint))

    @property
    def stubs(self) -> tuple[Stub, Stub]:
        """Both workers."""
        return self.context, self.generation

    async def settled(self) -> None:
        """Return when nothing runs and nothing is held; nothing was done that a real worker would have hidden."""
        assert loads(self.dispatch) == [0] * len(loads(self.dispatch))
        for stub in self.stubs:
            state = await stub.until(lambda state: state.running == 0 and state.held_blocks == 0)
            assert (state.violations, state.leaked_blocks) == ({}, 0), state.violation_notes


def config_of(engine: Engine, context: Stub, generation: Stub, **handoff: Any) -> ModelConfig:
    """A model of one pair."""
    place = WorkerConfig(context.url, bootstrap_port=context.side_port)
    return ModelConfig(
        "m",
        engine=engine,
        context=RoleConfig((place,)),
        generation=RoleConfig((generation.url,)),
        handoff=HandoffConfig(**handoff),
    )


@asynccontextmanager
async def pair_of(
    engine: Engine, *, handoff: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None, **stub: Any
) -> AsyncIterator[Pair]:
    """A pair of an engine's workers, of which nothing is left when it ends."""
    name = engine.name
    async with (
        run_stub(name, role="context", model="m", **stub) as context,
        run_stub(name, role="generation", model="m", failure_seconds=0, **stub) as generation,
        running(config_of(engine, context, generation, **(handoff or {})), **(settings or {})) as dispatch,
    ):
        await until(lambda: not dispatch.unready())
        yield Pair(context, generation, dispatch)


async def aggregated(engine: str, data: Mapping[str, Any], endpoint: Any, **extra: Any) -> Answer:
    """What one worker that serves whole requests answers."""
    async with run_stub(engine, model="m") as stub, running(single(stub.url)) as dispatch:
        return await ask(dispatch, exchange_of(orjson.dumps({**data, **extra}), endpoint=endpoint))


def texts_of(body: bytes) -> list[str]:
    """The text of each choice of an answer, streamed or not."""
    if not body.startswith(b"data: "):
        choices = orjson.loads(body)["choices"]
        return [choice["message"]["content"] if "message" in choice else choice["text"] for choice in choices]
    *events, done, end = body.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    found: dict[int, str] = {}
    for event in events:
        for choice in orjson.loads(event[6:])["choices"]:
            text = choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
            found[choice["index"]] = found.get(choice["index"], "") + text
    return [found[index] for index in sorted(found)]


def usage_of(body: bytes) -> dict[str, Any]:
    """The counts of an answer, streamed or not."""
    if not body.startswith(b"data: "):
        usage: dict[str, Any] = orjson.loads(body)["usage"]
        return usage
    counted = [orjson.loads(event[6:]).get("usage") for event in body.split(b"\n\n")[:-2]]
    return next(usage for usage in reversed(counted) if usage)
