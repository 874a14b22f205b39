"""Relays that are tried again: every attempt has its own handoff, and none of them is used twice."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from plugins.dispatch.client import TransportFault
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.retry import RetryConfig
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.metrics import CONTEXT, GENERATION
from tests.dispatch.counters import Counters
from tests.dispatch.engines.pairs import CHAT, aggregated, texts_of
from tests.dispatch.retries.fleets import SERIAL, Workers, bodies, fleet_of
from tests.dispatch.retries.workers import declines
from tests.dispatch.scripted import Seen, answer_ok, scripted
from tests.dispatch.support import ask, body_of, exchange_of, loads, pools, relay, running

pytestmark = pytest.mark.anyio

FAULTS = [("status", 500), ("status", 503), ("status", 429), ("die_before_headers", 500)]


@pytest.fixture(params=SERIAL)
async def workers(request: pytest.FixtureRequest) -> AsyncIterator[Workers]:
    """Two workers of each role."""
    engine, stub = SERIAL[request.param]
    async with fleet_of(engine, stub) as workers:
        yield workers


def ids(stubs: Any) -> list[object]:
    """By which id each leg was to be found."""
    found = [body.get("disaggregated_params") or body["kv_transfer_params"] for body in bodies(stubs)]
    return [params.get("disagg_request_id") or params.get("remote_request_id") for params in found]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("kind", "status"), FAULTS)
@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_leg_that_fails_is_done_by_another_worker(
    workers: Workers, role: str, kind: str, status: int, stream: bool
) -> None:
    """The client sees nothing of it, and each leg is counted once."""
    legs = {"context": Counters(CONTEXT), "generation": Counters(GENERATION)}
    workers.role(role)[0].add_fault(kind, status=status, times=-1)
    answer = await workers.ask(stream=stream)
    engine = workers.dispatch.pools[0].engine.name
    expected = await aggregated(engine, CHAT, CHAT_COMPLETIONS, stream=stream)
    assert texts_of(answer.body) == texts_of(expected.body)
    assert workers.role(role)[1].state().finished >= 1
    await workers.settled()
    for counters in legs.values():
        assert "error" not in counters.changes()
    assert legs[role].changes()["retry"] == 1


@pytest.mark.parametrize(("kind", "status"), FAULTS)
async def test_a_generation_leg_is_tried_again_with_a_new_handoff(workers: Workers, kind: str, status: int) -> None:
    """Whoever has seen a handoff may have used it, and one that is used twice gives a wrong answer."""
    workers.generation[0].add_fault(kind, status=status, times=-1)
    assert (await workers.ask()).body
    assert sum(stub.state().finished for stub in workers.context) == 2
    sent = ids(workers.generation)
    assert len(sent) == len(set(sent)) == 2


async def test_a_context_leg_is_tried_again_with_a_new_id() -> None:
    """TensorRT-LLM's workers would take the second one for the first; the generation leg gets the second one's."""
    async with fleet_of(*SERIAL["trtllm"]) as workers:
        workers.context[0].add_fault("status", status=500)
        assert (await workers.ask()).body
        first, second = ids(workers.context)
        assert first != second
        assert ids(workers.generation) == [second]


async def test_a_generation_worker_that_is_gone_leaves_the_handoff_as_it_is() -> None:
    """Nothing was admitted under its id: the next worker is sent the same, and the context phase is not repeated."""
    async with fleet_of(*SERIAL["trtllm"]) as workers:
        workers.generation[0].kill()
        assert (await workers.ask()).body
        assert ids(workers.generation[1:]) == ids(workers.context)
        assert len(bodies(workers.context)) == 1


async def test_a_handoff_that_anyone_may_use_is_sent_to_the_next_worker() -> None:
    """What lies in a shared store is found by the prompt."""
    engine = VllmEngine(connector="shared_storage")
    async with fleet_of(engine, {"connector": "shared-storage"}) as workers:
        workers.generation[0].add_fault("status", status=500)
        assert (await workers.ask()).body
        assert len(bodies(workers.context)) == 1


@pytest.mark.parametrize("gone", [False, True])
async def test_a_remote_tail_has_one_attempt(gone: bool) -> None:
    """The context worker sends what it computes to one worker, and cannot be told of another."""
    ids = {"ctx_request_id": 1, "disagg_request_id": 1}
    params = {"request_type": "context_only", **ids, "first_gen_tokens": [1], "remote_tail_start": 4}
    choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": ""}}
    answer = orjson.dumps(
        {"choices": [{**choice, "disaggregated_params": params}], "prompt_token_ids": [1], "usage": None}
    )

    async def hand_over(seen: Seen) -> None:
        await seen.answer(answer)

    async with scripted(hand_over) as context, scripted(declines(500)) as first, scripted(answer_ok) as second:
        async with running(relay([context.url], [first.url, second.url])) as dispatch:
            if gone:
                await first.stop()
            assert (await ask(dispatch, exchange_of(body_of()))).error.status >= 500
        assert (len(context.seen), len(first.seen), len(second.seen)) == (1, 0 if gone else 1, 0)
        if gone:
            await first.start()


async def test_no_context_phase_is_repeated_for_nobody(workers: Workers) -> None:
    """If there is no other generation worker, the first one's answer is the client's."""
    workers.generation[0].add_fault("status", status=503, headers={"Retry-After": "4"})
    workers.generation[1].kill()
    pools(workers.dispatch)[1]._watch._turn(pools(workers.dispatch)[1].workers[1], up=False)
    error = (await workers.ask()).error
    assert (error.status, error.headers) == (503, (("retry-after", "4"),))
    assert sum(stub.state().finished for stub in workers.context) == 1


@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_request_that_fails_everywhere_ends(workers: Workers, role: str) -> None:
    """With the worker's own words, after a bounded number of attempts of both legs."""
    for stub in workers.role(role):
        stub.add_fault("status", status=500, times=-1)
    error = (await workers.ask()).error
    assert (error.status, error.message) == (500, "this worker cannot serve the request now")
    assert len(bodies(workers.role(role))) == 2
    assert len(bodies(workers.context)) <= 3
    await workers.settled()


async def test_the_load_of_an_attempt_is_given_back_before_the_next() -> None:
    """A retry is a reservation of its own, on the worker that it goes to."""
    async with fleet_of(*SERIAL["trtllm"]) as workers:
        workers.context[0].add_fault("status", status=500)
        held = []

        async def look(seen: Seen) -> None:
            held.append(loads(workers.dispatch))
            await answer_ok(seen)

        async with scripted(look) as last:
            pool = pools(workers.dispatch)[0]
            pool.workers[1].url = last.url
            assert (await workers.ask()).error.status == 502
        assert held == [[0, 1, 0, 0]]


@pytest.mark.parametrize("back", [False, True])
async def test_a_context_worker_that_died_between_the_legs_is_replaced(back: bool) -> None:
    """Even if it is back, with nothing of what it held; the generation worker that says 500 is not to blame."""
    async with fleet_of(*SERIAL["trtllm"], generations=1) as workers:
        contexts, generations = pools(workers.dispatch)
        failures = 0

        async def fail_once(seen: Seen) -> None:
            nonlocal failures
            failures += 1
            if failures == 1:
                contexts.report(contexts.workers[0], TransportFault("gone"))
                contexts._watch._turn(contexts.workers[0], up=back)
                await declines(500)(seen)
            else:
                await answer_ok(seen)

        async with scripted(fail_once) as only:
            generations.workers[0].url = only.url
            assert (await workers.ask()).json == {"ok": True}
        assert (failures, generations.workers[0].circuit.streak) == (2, 0)
        assert [len(bodies([stub])) for stub in workers.context] == [1, 1]


async def test_without_budget_no_context_phase_is_repeated() -> None:
    """It is the dearest of retries."""
    none = RetryConfig(budget_share=0.0, budget_floor=0.0)
    async with fleet_of(TrtllmEngine(), {}, retry=none) as workers:
        workers.generation[0].add_fault("status", status=500)
        assert (await workers.ask()).error.status == 500
        assert len(bodies(workers.context)) == 1
