"""Two context and two generation workers of each engine that hands over, played by strict stubs."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
from attrs import frozen

from plugins.dispatch.config import ModelConfig, RoleConfig
from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.dispatch.engine import Engine
from plugins.dispatch.engines.sglang import SglangEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.worker_config import WorkerConfig
from tests.dispatch.engines.pairs import CHAT
from tests.dispatch.support import Answer, ask, exchange_of, loads, running

SERIAL: dict[str, tuple[Engine, dict[str, Any]]] = {
    "nixl": (VllmEngine(), {}),
    "trtllm": (TrtllmEngine(), {}),
}
TOGETHER: dict[str, tuple[Engine, dict[str, Any]]] = {
    "mooncake": (VllmEngine(connector="mooncake"), {"connector": "mooncake"}),
    "sglang": (SglangEngine(), {}),
    "trtllm_first": (TrtllmEngine(schedule="generation_first", body="msgpack"), {}),
}


@frozen
class Workers:
    """The workers, and dispatch; requests go to the first worker of each role first."""

    context: tuple[Stub, ...]
    generation: tuple[Stub, ...]
    dispatch: Dispatch

    async def ask(self, **extra: Any) -> Answer:
        """Send one request."""
        return await ask(self.dispatch, exchange_of(orjson.dumps({**CHAT, **extra})))

    def role(self, name: str) -> tuple[Stub, ...]:
        """The workers of a role."""
        return self.context if name == "context" else self.generation

    async def settled(self) -> None:
        """Return when nothing runs any more; nothing was done that a real worker would have hidden."""
        assert loads(self.dispatch) == [0] * len(loads(self.dispatch))
        await self.dispatch.stop()
        for stub in (*self.context, *self.generation):
            state = await stub.until(lambda state: state.running == 0)
            assert state.violations == {}, state.violation_notes


def bodies(stubs: Iterable[Stub]) -> list[dict[str, Any]]:
    """The bodies of all work that workers were sent."""
    received = [one for stub in stubs for one in stub.state().last_requests if one.is_work]
    return [one.body for one in received if isinstance(one.body, dict)]


def place_of(stub: Stub) -> WorkerConfig:
    """A worker, and where others find what it holds."""
    return WorkerConfig(stub.url, bootstrap_port=stub.side_port)


@asynccontextmanager
async def fleet_of(
    engine: Engine, stub: dict[str, Any], *, contexts: int = 2, generations: int = 2, **settings: Any
) -> AsyncIterator[Workers]:
    """A fleet of an engine's workers."""
    async with AsyncExitStack() as stack:
        context = [
            await stack.enter_async_context(run_stub(engine.name, role="context", model="m", **stub))
            for _ in range(contexts)
        ]
        generation = [
            await stack.enter_async_context(
                run_stub(engine.name, role="generation", model="m", failure_seconds=0, **stub)
            )
            for _ in range(generations)
        ]
        model = ModelConfig(
            "m",
            engine=engine,
            context=RoleConfig(tuple(map(place_of, context))),
            generation=RoleConfig(tuple(stub.url for stub in generation)),
        )
        async with running(model, **settings) as dispatch:
            yield Workers(tuple(context), tuple(generation), dispatch)
            for one in (*context, *generation):
                one.reset()
