"""What becomes of a relay whose worker declines, fails or is gone, and of one whose client leaves."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from kernel import ClientGone
from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.metrics import CONTEXT, GENERATION
from plugins.slots import SERVED
from tests.dispatch.counters import Counters
from tests.dispatch.relays import CHAT, Relay, aggregated, relay_in, text_of
from tests.dispatch.support import ask, exchange_of, loads, relay, running

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["json", "msgpack"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Relay]:
    """The relay, in both formats of bodies, without retries."""
    async with relay_in(request.param) as relay:
        yield relay


async def test_an_answer_without_a_handoff_goes_no_further(pair: Relay, logged: list[Any]) -> None:
    """The generation worker is not asked to answer from nothing."""
    pair.context.add_fault("no_handoff")
    error = (await pair.ask(CHAT)).error
    assert (error.status, error.message) == (502, "the context worker's answer has no handoff")
    assert pair.generation.state().requests == 0
    assert [line["role"] for line in logged if line["event"] == "leg.failed"] == ["context"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_context_workers_error_is_the_clients(pair: Relay, stream: bool) -> None:
    """With its status and its words; the generation worker hears nothing of it."""
    pair.context.add_fault("status", status=429, headers={"Retry-After": "4"})
    error = (await pair.ask(CHAT, stream=stream)).error
    assert (error.status, error.message) == (429, "this worker cannot serve the request now")
    assert error.headers == (("retry-after", "4"),)
    assert pair.generation.state().requests == 0


async def test_a_prompt_that_is_too_long_has_its_code() -> None:
    """From the context worker, which is the one that reads the prompt."""
    async with (
        run_stub("trtllm", role="context", context_tokens=4) as context,
        run_stub("trtllm", role="generation") as generation,
        running(relay([context.url], [generation.url])) as dispatch,
    ):
        error = (await ask(dispatch, exchange_of(orjson.dumps(CHAT)))).error
    assert (error.status, error.code) == (400, "context_length_exceeded")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["die_before_headers", "die_after_headers", "garbage", "status"])
@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_leg_that_fails_ends_the_request(pair: Relay, role: str, kind: str, stream: bool) -> None:
    """A status of its own, no load left, and each leg counted as what it was."""
    legs = {"context": Counters(CONTEXT), "generation": Counters(GENERATION)}
    getattr(pair, role).add_fault(kind)
    error = (await pair.ask(CHAT, stream=stream)).error
    assert error.status == (500 if kind == "status" else 502)
    assert "127.0.0.1" not in error.message
    assert loads(pair.dispatch) == [0, 0]
    assert legs[role].changes() == {"total": 1, "error": 1, "completed": 1}
    if role == "generation":
        assert legs["context"].changes() == {"total": 1, "completed": 1, "complete": 1}
    else:
        assert legs["generation"].changes() == {}


@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_client_that_leaves_stops_the_leg_that_runs(pair: Relay, role: str) -> None:
    """During the context phase as well as before the first token."""
    stub: Stub = getattr(pair, role)
    stub.add_fault("hang")
    exchange = exchange_of(orjson.dumps({**CHAT, "stream": True}))
    task = asyncio.create_task(ask(pair.dispatch, exchange))
    await stub.until(lambda state: state.running == 1)
    assert loads(pair.dispatch) == ([1, 0] if role == "context" else [0, 1])
    exchange.interrupt(ClientGone())
    with pytest.raises(ClientGone):
        await task
    assert loads(pair.dispatch) == [0, 0]
    await stub.until(lambda state: state.connections_open == 0)


async def test_a_context_worker_that_is_gone_is_replaced_with_a_new_id() -> None:
    """Nothing was sent to the first one, and the second never sees the first one's id."""
    async with (
        run_stub("trtllm", role="context") as gone,
        run_stub("trtllm", role="context") as there,
        run_stub("trtllm", role="generation") as generation,
        running(relay([gone.url, there.url], [generation.url])) as dispatch,
    ):
        gone.kill()
        exchange = exchange_of(orjson.dumps(CHAT))
        answer = await ask(dispatch, exchange)
        assert text_of(answer.body) == text_of(await aggregated(CHAT, CHAT_COMPLETIONS))
        assert exchange[SERVED].workers == [gone.url, there.url, generation.url]


async def test_a_generation_worker_that_is_gone_is_replaced_with_the_same_handoff() -> None:
    """It was not told of the handoff, so the handoff is still fresh."""
    async with (
        run_stub("trtllm", role="context") as context,
        run_stub("trtllm", role="generation") as gone,
        run_stub("trtllm", role="generation") as there,
        running(relay([context.url], [gone.url, there.url])) as dispatch,
    ):
        gone.kill()
        answer = await ask(dispatch, exchange_of(orjson.dumps(CHAT)))
        assert text_of(answer.body) == text_of(await aggregated(CHAT, CHAT_COMPLETIONS))
        assert context.state().requests == 1
