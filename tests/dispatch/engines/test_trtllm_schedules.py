"""TensorRT-LLM's generation-first order: what a context worker is asked before, and that both legs go at once."""

import asyncio
from typing import Any

import orjson
import pytest

from kernel import ClientGone
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engine import Partner, Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import Payload
from tests.dispatch.engines.pairs import CHAT, pair_of
from tests.dispatch.support import ask, exchange_of

pytestmark = pytest.mark.anyio

FIRST = TrtllmEngine(schedule="generation_first")


async def test_a_restarted_context_worker_is_asked_again() -> None:
    """What it told of itself before is not true any more."""
    async with pair_of(FIRST) as pair:
        await pair.ask(CHAT)
        await pair.ask(CHAT)
        assert pair.context.state().probes["/server_info"] == 1
        pair.context.add_fault("status", status=500)
        assert (await pair.ask(CHAT)).error.status == 500
        await pair.ask(CHAT)
        assert pair.context.state().probes["/server_info"] == 2
        await pair.settled()


async def test_a_context_worker_that_tells_nothing_is_not_used() -> None:
    """The generation worker would wait for nobody."""
    async with pair_of(FIRST) as pair:
        pair.context.add_fault("status", path="/server_info", status=503)
        assert (await pair.ask(CHAT)).error.status == 503
        assert pair.generation.state().requests == 0
        await pair.settled()


async def test_a_client_that_leaves_while_a_context_worker_is_asked_frees_both() -> None:
    """The workers were chosen before; neither has been sent the request."""
    async with pair_of(FIRST) as pair:
        pair.context.add_fault("hang", path="/server_info")
        exchange = exchange_of(orjson.dumps(CHAT))
        task = asyncio.create_task(ask(pair.dispatch, exchange))
        await pair.context.until(lambda state: "/server_info" in state.probes)
        exchange.interrupt(ClientGone())
        with pytest.raises(ClientGone):
            await task
        assert [stub.state().requests for stub in pair.stubs] == [0, 0]
        await pair.settled()


async def test_both_legs_of_a_pair_run_at_once() -> None:
    """The context worker of a generation-first pair says nothing until the generation worker has come for the cache."""
    async with pair_of(FIRST) as pair:
        pair.generation.add_fault("hang")
        exchange = exchange_of(orjson.dumps({**CHAT, "stream": True}))
        task = asyncio.create_task(ask(pair.dispatch, exchange))
        await pair.context.until(lambda state: state.running == 1)
        await pair.generation.until(lambda state: state.running == 1)
        pair.generation.clear_faults()
        assert (await task).body.endswith(b"data: [DONE]\n\n")
        await pair.settled()


@pytest.mark.parametrize("told", [None, [], {}, {"disaggregated_params": {"ctx_info_endpoint": []}}])
def test_an_endpoint_that_is_missing_is_a_fault(told: Any) -> None:
    """And no generation worker is asked."""
    with pytest.raises(MalformedFault):
        FIRST.meet(Request(CHAT_COMPLETIONS, Payload(b"", {}), False), Partner("http://a", told=told))
