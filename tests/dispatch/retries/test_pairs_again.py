"""Pairs that are tried again: both legs, with a new room, and the one that did not fail is told at once."""

from collections.abc import AsyncIterator

import pytest

from plugins.dispatch.retry import RetryConfig
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.metrics import CONTEXT, GENERATION
from tests.dispatch.counters import Counters
from tests.dispatch.engines.pairs import CHAT, aggregated, texts_of
from tests.dispatch.retries.fleets import TOGETHER, Workers, bodies, fleet_of
from tests.dispatch.support import loads

pytestmark = pytest.mark.anyio

FAULTS = [("status", 500), ("status", 429), ("die_before_headers", 500)]


@pytest.fixture(params=TOGETHER)
async def workers(request: pytest.FixtureRequest) -> AsyncIterator[Workers]:
    """Two workers of each role."""
    engine, stub = TOGETHER[request.param]
    async with fleet_of(engine, stub) as workers:
        yield workers


def rooms(workers: Workers, role: str) -> list[object]:
    """Where the legs of a role were to meet the other ones."""
    found = []
    for body in bodies(workers.role(role)):
        params = body.get("disaggregated_params") or body.get("kv_transfer_params") or {}
        found.append(body.get("bootstrap_room") or params.get("disagg_request_id") or params.get("transfer_id"))
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("kind", "status"), FAULTS)
@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_pair_that_fails_is_done_anew(
    workers: Workers, role: str, kind: str, status: int, stream: bool
) -> None:
    """The client sees nothing of it; each leg is counted once, and nobody waits for a half that is gone."""
    expected = await aggregated(workers.dispatch.pools[0].engine.name, CHAT, CHAT_COMPLETIONS, stream=stream)
    legs = {"context": Counters(CONTEXT), "generation": Counters(GENERATION)}
    workers.role(role)[0].add_fault(kind, status=status, times=-1)
    answer = await workers.ask(stream=stream)
    assert texts_of(answer.body) == texts_of(expected.body)
    assert workers.role(role)[1].state().finished == 1
    await workers.settled()
    for counters in legs.values():
        changes = counters.changes()
        assert (changes["total"], changes["completed"], changes.get("error", 0)) == (1, 1, 0)


@pytest.mark.parametrize("role", ["context", "generation"])
async def test_no_room_is_used_twice(workers: Workers, role: str) -> None:
    """Those who met in the first one may still be there."""
    workers.role(role)[0].add_fault("status", status=500)
    assert (await workers.ask()).body
    for one in ("context", "generation"):
        met = rooms(workers, one)
        assert len(set(met)) == len(met) > 0
    assert rooms(workers, role)[-1] in rooms(workers, "generation" if role == "context" else "context")


@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_pair_that_fails_everywhere_ends(workers: Workers, role: str) -> None:
    """With what the worker said, and nothing runs on."""
    for stub in workers.role(role):
        stub.add_fault("status", status=500, times=-1)
    error = (await workers.ask()).error
    assert (error.status, error.message) == (500, "this worker cannot serve the request now")
    assert len(bodies(workers.role(role))) == 2
    assert loads(workers.dispatch) == [0] * 4
    await workers.settled()


@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_4xx_ends_the_pair_at_once(workers: Workers, role: str) -> None:
    """The other leg is told, and no further pair is asked."""
    workers.role(role)[0].add_fault("status", status=400)
    assert (await workers.ask()).error.status == 400
    assert len(bodies(workers.role(role))) == 1
    await workers.settled()


async def test_the_leg_that_did_not_fail_is_aborted_at_once() -> None:
    """In each attempt, on the worker that it was sent to."""
    async with fleet_of(*TOGETHER["sglang"]) as workers:
        workers.context[0].add_fault("status", status=500)
        assert (await workers.ask()).body
        await workers.settled()
        assert sum(stub.state().aborts for stub in workers.generation) == 1
        assert sum(stub.state().aborts for stub in workers.context) == 0


async def test_without_budget_a_pair_is_tried_once() -> None:
    """Both legs are a worker's work each, so that a pair is what a retry costs most."""
    none = RetryConfig(budget_share=0.0, budget_floor=0.0)
    async with fleet_of(*TOGETHER["sglang"], retry=none) as workers:
        workers.context[0].add_fault("status", status=500)
        assert (await workers.ask()).error.status == 500
        assert len(bodies(workers.context)) == 1
        await workers.settled()
