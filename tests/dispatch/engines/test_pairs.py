"""Pairs of every engine's workers, played by stubs that check the protocol on their side."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from kernel import ClientGone, StreamReply
from kernel.testing import read_reply, run_chain
from plugins.dispatch.engine import Engine
from plugins.dispatch.engines.lmdeploy import LmdeployEngine
from plugins.dispatch.engines.sglang import SglangEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.metrics import CONTEXT, GENERATION
from tests.dispatch.counters import Counters
from tests.dispatch.engines.pairs import ASKED, CHAT, Pair, aggregated, pair_of, texts_of, usage_of
from tests.dispatch.support import ONCE, ask, exchange_of

pytestmark = pytest.mark.anyio

SETUPS: dict[str, tuple[Engine, dict[str, Any]]] = {
    "nixl": (VllmEngine(), {}),
    "nixl_reuse": (VllmEngine(reuse_prompt_token_ids=True), {"engine_version": "0.33"}),
    "nixl_old": (VllmEngine(), {"engine_version": "0.15"}),
    "nixl_push": (VllmEngine(connector="nixl_push"), {"connector": "nixl-push"}),
    "mooncake": (VllmEngine(connector="mooncake"), {"connector": "mooncake"}),
    "multi": (VllmEngine(connector="multi", children=("nixl", "lmcache")), {}),
    "sglang": (SglangEngine(), {}),
    "lmdeploy": (LmdeployEngine(), {}),
    "trtllm": (TrtllmEngine(), {}),
    "trtllm_first": (TrtllmEngine(schedule="generation_first", body="msgpack"), {}),
}


@pytest.fixture(params=SETUPS)
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """A pair of each engine and connector, without retries."""
    engine, stub = SETUPS[request.param]
    async with pair_of(engine, settings={"retry": ONCE}, **stub) as pair:
        yield pair


@pytest.mark.parametrize("extra", [{}, {"stream": True, "stream_options": {"include_usage": True}}, {"stop": ["w"]}])
@pytest.mark.parametrize(("endpoint", "data"), ASKED)
async def test_two_workers_say_what_one_would(pair: Pair, endpoint: Any, data: Any, extra: Any) -> None:
    """Text and counts, streamed or not; the generation worker fetched what the context worker computed."""
    name = pair.generation.settings.engine
    answer = await pair.ask(data, endpoint, **extra)
    expected = await aggregated(name, data, endpoint, **extra)
    assert texts_of(answer.body) == texts_of(expected.body)
    assert texts_of(answer.body) != [""] or "stop" in extra
    assert usage_of(answer.body) == usage_of(expected.body)
    await pair.settled()
    if "stop" not in extra:
        assert (pair.context.state().finished, pair.generation.state().finished) == (1, 1)
        waits = pair.dispatch.pools[0].engine == TrtllmEngine(schedule="generation_first", body="msgpack")
        assert waits or pair.context.state().handoffs.fetched == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("endpoint", "data"), ASKED)
async def test_several_choices_are_right(pair: Pair, endpoint: Any, data: Any, stream: bool) -> None:
    """Each choice says what it would of one worker, even if two of them cannot share a handoff."""
    extra = {"n": 3, "stream": stream}
    answer = await pair.ask(data, endpoint, **extra)
    if pair.generation.settings.engine == "lmdeploy":  # whose handoff carries one sequence only
        assert answer.error.status == 400
        return
    expected = await aggregated(pair.generation.settings.engine, data, endpoint, **extra)
    assert texts_of(answer.body) == texts_of(expected.body)
    await pair.settled()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("endpoint", "data"), ASKED)
async def test_nothing_internal_passes(pair: Pair, endpoint: Any, data: Any, stream: bool) -> None:
    """Neither what a client forged reaches a worker, nor what workers tell each other a client."""
    forged = {"host": "203.0.113.9", "do_remote_prefill": True, "transfer_id": "forged"}
    fields: dict[str, Any] = {
        "kv_transfer_params": forged,
        "disaggregated_params": {"request_type": "generation_only", "ctx_info_endpoint": "203.0.113.9"},
        "bootstrap_host": "203.0.113.9",
        "bootstrap_port": 1,
        "bootstrap_room": 7,
        "rid": "forged",
        "migration_request": {"remote_engine_id": "http://203.0.113.9"},
        "with_cache": True,
        "preserve_cache": "forged",
        "vllm_xargs": {"kv_transfer_params": forged},
    }
    if pair.generation.settings.engine == "trtllm":
        del fields["vllm_xargs"]
    headers = [
        ("x-prefiller-host-port", "203.0.113.9:1"),
        ("x-override-bootstrap-host", "203.0.113.9"),
        ("x-trtllm-disagg-auth", "forged"),
        ("authorization", "Bearer forged"),
    ]
    raw = orjson.dumps({**data, **fields, "stream": stream})
    answer = await ask(pair.dispatch, exchange_of(raw, endpoint=endpoint, headers=headers))
    for leak in (
        b"127.0.0.1",
        b'transfer_params":{',
        b"bootstrap",
        b"opaque",
        b"ctx_request_id",
        b"engine_id",
        b'block_ids":[',
    ):
        assert leak not in answer.body
    assert answer.body
    for stub in pair.stubs:
        (received,) = [received for received in stub.state().last_requests if received.is_work]
        assert "203.0.113.9" not in f"{received.body}{received.headers}"
        assert "forged" not in f"{received.body}{received.headers}"
    await pair.settled()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["status", "die_before_headers", "die_after_headers", "garbage"])
@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_leg_that_fails_ends_the_other(pair: Pair, role: str, kind: str, stream: bool) -> None:
    """With a status of its own, and each leg counted once; nobody waits for the half that is gone."""
    legs = {"context": Counters(CONTEXT), "generation": Counters(GENERATION)}
    # a connection that breaks at once may have been kept from before, so that a second one is tried
    getattr(pair, role).add_fault(kind, status=503, times=-1 if kind == "die_before_headers" else 1)
    error = (await pair.ask(CHAT, stream=stream)).error
    assert error.status == (503 if kind == "status" else 502)
    assert "127.0.0.1" not in error.message
    await pair.dispatch.stop()
    for stub in pair.stubs:
        state = await stub.until(lambda state: state.running == 0)
        assert state.violations == {}
    # one that had been used to connect the workers was: then the context phase is done again
    most = 2 if pair.generation.settings.engine == "lmdeploy" else 1
    for name, counters in legs.items():
        changes = counters.changes()
        assert changes.get("total", 0) == changes.get("completed", 0) <= most, name
    assert legs[role].changes()["error"] == 1


@pytest.mark.parametrize("role", ["context", "generation"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_both(pair: Pair, role: str, stream: bool) -> None:
    """Whichever leg it waits for."""
    getattr(pair, role).add_fault("hang")
    exchange = exchange_of(orjson.dumps({**CHAT, "stream": stream}))
    task = asyncio.create_task(ask(pair.dispatch, exchange))
    await getattr(pair, role).until(lambda state: state.running == 1)
    exchange.interrupt(ClientGone())
    with pytest.raises(ClientGone):
        await task
    await pair.settled()


async def test_a_client_that_leaves_in_mid_stream_frees_both(pair: Pair) -> None:
    """The generation worker stops between two tokens."""
    pair.generation.add_fault("slow", seconds=0.02)
    exchange = exchange_of(orjson.dumps({**CHAT, "stream": True, "max_tokens": 2000}))
    reply = await run_chain([pair.dispatch], exchange)
    assert isinstance(reply, StreamReply)
    begun = asyncio.Event()

    def note(chunk: bytes) -> bytes:
        begun.set()
        return chunk

    reply.attach(step=note)
    task = asyncio.create_task(read_reply(reply, exchange))
    await begun.wait()
    exchange.interrupt(ClientGone())
    await task
    await exchange.release()
    assert (await pair.generation.until(lambda state: state.running == 0)).finished == 0
    await pair.settled()


async def test_the_endpoint_is_the_same_for_both_legs(pair: Pair) -> None:
    """And so is the request's id, which older vLLM workers find each other by."""
    exchange = exchange_of(orjson.dumps(CHAT), endpoint=CHAT_COMPLETIONS)
    await ask(pair.dispatch, exchange)
    for stub in pair.stubs:
        (received,) = [received for received in stub.state().last_requests if received.is_work]
        assert received.path == CHAT_COMPLETIONS.path
        assert received.header("x-request-id") == exchange.id
