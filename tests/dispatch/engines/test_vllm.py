"""What is particular to vLLM's relay: lost, stale and missing handoffs, and streams that fail after their opening."""

import time
from typing import Any

import orjson
import pytest
from attrs import evolve

from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.retry import RetryConfig
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS
from plugins.metrics import HANDOFFS_MISSING
from plugins.slots import DEADLINE
from tests.dispatch.engines.pairs import ASKED, CHAT, COMPLETION, aggregated, config_of, pair_of, texts_of, usage_of
from tests.dispatch.support import ONCE, ask, exchange_of, pools, running

pytestmark = pytest.mark.anyio

COUNTED = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("extra", [{}, COUNTED])
@pytest.mark.parametrize(("endpoint", "data"), ASKED)
async def test_the_second_time_the_context_workers_cache_is_told(endpoint: Any, data: Any, extra: Any) -> None:
    """What the generation worker fetched is not what was cached; both workers' own numbers would be wrong."""
    async with pair_of(VllmEngine()) as pair:
        first = usage_of((await pair.ask(data, endpoint, **extra)).body)
        second = usage_of((await pair.ask(data, endpoint, **extra)).body)
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] > 0


async def test_a_missing_handoff_costs_time_alone() -> None:
    """The generation worker does both phases; it is counted."""
    before = HANDOFFS_MISSING.labels("m")._value.get()
    async with pair_of(VllmEngine()) as pair:
        pair.context.add_fault("no_handoff")
        answer = await pair.ask(CHAT)
        assert texts_of(answer.body) == texts_of((await aggregated("vllm", CHAT, CHAT_COMPLETIONS)).body)
        body = pair.generation.state().last_requests[-1].body
        assert isinstance(body, dict)
        assert "kv_transfer_params" not in body
        await pair.settled()
    assert HANDOFFS_MISSING.labels("m")._value.get() == before + 1


async def test_a_stream_that_fails_after_its_role_has_a_status() -> None:
    """The generation worker opens a stream before it knows whether it gets the KV cache."""
    async with pair_of(VllmEngine(), settings={"retry": ONCE}) as pair:
        pair.generation.add_fault("error_event", after=1)
        error = (await pair.ask(CHAT, stream=True)).error
        assert error.status == 500
        pair.generation.add_fault("cut_mid_event", after=1)
        assert (await pair.ask(CHAT, stream=True)).error.status == 502


async def test_a_handoff_that_was_held_for_too_long_is_made_anew() -> None:
    """And the worker is not sent the old one, which by then may name another request's blocks."""
    async with pair_of(VllmEngine(lease_seconds=1e-9), settings={"retry": RetryConfig(attempts=1)}) as pair:
        error = (await pair.ask(CHAT)).error
        assert error.status == 504
        assert pair.context.state().finished == 2
        assert pair.generation.state().requests == 0
        pair.context.reset()


async def test_a_handoff_is_never_sent_twice() -> None:
    """A kept connection that breaks may have carried it: the context phase is done again."""
    async with pair_of(VllmEngine()) as pair:
        await pair.ask(CHAT)
        pair.generation.add_fault("die_before_headers")
        answer = await pair.ask(CHAT)
        assert texts_of(answer.body) == texts_of((await aggregated("vllm", CHAT, CHAT_COMPLETIONS)).body)
        assert pair.context.state().finished == 3
        sent = [
            received.body["kv_transfer_params"]["remote_request_id"]
            for received in pair.generation.state().last_requests
            if received.is_work and isinstance(received.body, dict)
        ]
        assert len(set(sent)) == len(sent) == 3
        pair.context.reset()


async def test_a_worker_that_cannot_be_reached_leaves_the_handoff_good() -> None:
    """Nothing was sent, so that the next worker gets the same one."""
    async with pair_of(VllmEngine()) as pair, pair_of(VllmEngine()) as other:
        config = config_of(VllmEngine(), pair.context, pair.generation)
        assert config.generation is not None
        workers = (pair.generation.url, other.generation.url)
        config = evolve(config, generation=evolve(config.generation, workers=workers))
        async with running(config) as dispatch:
            pair.generation.kill()
            answer = await ask(dispatch, exchange_of(orjson.dumps(CHAT)))
            assert answer.json["choices"]
            assert pair.context.state().finished == 1
            await other.settled()
            await pair.generation.restart()


async def test_without_time_left_nothing_is_begun() -> None:
    """A request whose deadline is near would leave blocks behind that nobody fetches."""
    async with pair_of(VllmEngine(), handoff={"needed_seconds": 5.0}) as pair:
        exchange = exchange_of(orjson.dumps(CHAT))
        exchange[DEADLINE] = time.monotonic() + 4
        error = (await ask(pair.dispatch, exchange)).error
        assert (error.status, error.code) == (504, "deadline_exceeded")
        assert pair.context.state().requests == 0
        exchange = exchange_of(orjson.dumps(CHAT))
        exchange[DEADLINE] = time.monotonic() + 60
        assert (await ask(pair.dispatch, exchange)).json["choices"]


@pytest.mark.parametrize(("words", "phases"), [("short", 0), (" ".join(["word"] * 400), 1)])
async def test_a_short_prompt_skips_the_context_phase(words: str, phases: int) -> None:
    """Where handing it over takes longer than computing it."""
    async with pair_of(VllmEngine(), handoff={"skip_context_below_tokens": 100}) as pair:
        answer = await pair.ask(COMPLETION, COMPLETIONS, prompt=words)
        assert answer.json["choices"]
        assert pair.context.state().requests == phases
        assert pair.generation.state().requests == 1
        await pair.settled()


async def test_without_a_generation_worker_no_context_phase_is_begun() -> None:
    """Its blocks would wait in vain."""
    async with pair_of(VllmEngine()) as pair:
        for pool in pools(pair.dispatch):
            for worker in pool.workers:
                if worker.url == pair.generation.url:
                    pool._roster.drain(worker)
        assert (await pair.ask(CHAT)).error.status == 503
        assert pair.context.state().requests == 0


@pytest.mark.parametrize("alone", [False, True])
async def test_without_a_context_worker_the_other_one_may_do_both(alone: bool) -> None:
    """If it is told so."""
    async with pair_of(VllmEngine(), handoff={"alone_without_context": alone}) as pair:
        (worker,) = next(pool for pool in pools(pair.dispatch) if pool.settings.role == "context").workers
        worker.up = False
        next(pool for pool in pools(pair.dispatch) if pool.settings.role == "context")._roster.refresh(worker)
        answer = await pair.ask(CHAT)
        if alone:
            assert answer.json["choices"]
            await pair.settled()
        else:
            assert answer.error.status == 503
        assert pair.generation.state().requests == alone


@pytest.mark.parametrize("connector", ["shared_storage", "lmcache"])
@pytest.mark.parametrize("extra", [{}, COUNTED, {"n": 2}])
async def test_a_shared_store_needs_no_handoff(connector: Any, extra: Any, tmp_path: Any) -> None:
    """The prompt is the key, for any number of choices."""
    store = {"connector": connector.replace("_", "-"), "storage_path": str(tmp_path)}
    async with pair_of(VllmEngine(connector=connector), **store) as pair:
        answer = await pair.ask(CHAT, **extra)
        expected = await aggregated("vllm", CHAT, CHAT_COMPLETIONS, **extra)
        assert texts_of(answer.body) == texts_of(expected.body)
        assert b'transfer_params":{' not in answer.body
        assert pair.context.state().finished == 1
        (body,) = [received.body for received in pair.generation.state().last_requests if received.is_work]
        assert body == {**CHAT, **extra}
        await pair.settled()
