"""Which failures are tried again, on which worker, and what the client is told when nothing helps."""

from time import monotonic
from typing import Any

import pytest

from plugins.dispatch.handoffs import HandoffConfig
from plugins.dispatch.job import begin
from plugins.dispatch.runner import run
from plugins.metrics import GENERATION, RETRIES, child
from plugins.slots import DEADLINE, SERVED, WorkerRejection
from tests.dispatch.counters import Counters
from tests.dispatch.retries.workers import declines, stream
from tests.dispatch.scripted import OK, Seen, answer_ok, die, hang, scripted
from tests.dispatch.support import ask, body_of, exchange_of, loads, pools, running, single

pytestmark = pytest.mark.anyio

RETRIED = [408, 429, 500, 502, 503, 504]


def retries(reason: str) -> float:
    """How many retries were counted."""
    return float(child(RETRIES, "m", "generation", reason)._value.get())


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", RETRIED)
async def test_408_429_and_5xx_are_retried_on_another_worker(
    status: int, streamed: bool, transport: str, logged: list[Any]
) -> None:
    """As TensorRT-LLM's newest frontend does, but never on the worker that said so."""
    legs, reason = Counters(GENERATION), "5xx" if status >= 500 else str(status)
    before = retries(reason)
    async with scripted(declines(status)) as first, scripted(stream if streamed else answer_ok) as second:
        async with running(single(first.url, second.url, transport=transport)) as dispatch:
            exchange = exchange_of(body_of(stream=streamed))
            assert (await ask(dispatch, exchange)).body
            assert loads(dispatch) == [0, 0]
        assert (len(first.seen), len(second.seen)) == (1, 1)
    assert (exchange[SERVED].attempts, exchange[SERVED].workers) == (2, [first.url, second.url])
    assert {name: legs.changes()[name] for name in ("total", "retry", "completed")} == dict.fromkeys(
        ("total", "retry", "completed"), 1
    )
    assert "error" not in legs.changes()
    assert retries(reason) - before == 1
    (line,) = [line for line in logged if line["event"] == "leg.retried"]
    assert (line["reason"], line["status"], line["worker"]) == (reason, status, first.url)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 451, 499])
async def test_other_4xx_are_sent_once(status: int, transport: str) -> None:
    """The request is at fault, and the next worker would say the same."""
    async with scripted(declines(status)) as first, scripted(answer_ok) as second:
        async with running(single(first.url, second.url, transport=transport)) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of()))).error.status == status
        assert (len(first.seen), len(second.seen)) == (1, 0)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_connection_that_breaks_before_the_answer_is_retried(streamed: bool, transport: str) -> None:
    """On another worker; the first one is out until a probe finds it well."""
    async with scripted(die) as first, scripted(stream if streamed else answer_ok) as second:
        async with running(single(first.url, second.url, transport=transport)) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of(stream=streamed)))).body
            assert pools(dispatch)[0].workers[0].faults == 1
        assert (len(first.seen), len(second.seen)) == (1, 1)


async def test_an_error_event_in_place_of_a_stream_counts_as_its_status(transport: str) -> None:
    """Nothing of it has gone to the client."""

    async def fail(seen: Seen) -> None:
        await seen.begin_stream(b'data: {"error":{"message":"no memory","code":500}}\n\n')
        await seen.end_stream()

    async with scripted(fail) as first, scripted(stream) as second:
        async with running(single(first.url, second.url, transport=transport)) as dispatch:
            assert b"hello" in (await ask(dispatch, exchange_of(body_of(stream=True)))).body
        assert len(first.seen) == 1


async def test_a_timeout_is_not_retried(transport: str) -> None:
    """The worker may be at it still; a second one would be kept as busy, and the third after it."""
    async with scripted(hang) as first, scripted(answer_ok) as second:
        async with running(single(first.url, second.url, transport=transport), total_timeout_seconds=0.05) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of()))).error.status == 504
            await first.until(lambda: first.open <= 1)
        assert len(second.seen) == 0


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"content-length: 12\r\n\r\n<html></html",
        OK + b'content-length: 100\r\n\r\n{"half',
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_an_answer_that_came_is_not_asked_for_again(raw: bytes, transport: str) -> None:
    """Neither nonsense nor half an answer: the work was done, and would be done twice."""

    async def answer(seen: Seen) -> None:
        await seen.send(raw)
        await seen.hang_up()

    async with scripted(answer) as first, scripted(answer_ok) as second:
        async with running(single(first.url, second.url, transport=transport)) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of()))).error.status == 502
        assert len(second.seen) == 0


async def test_a_request_that_fails_everywhere_is_stopped_by_its_attempts(transport: str) -> None:
    """It may be the request that makes workers fail, and there are more of them."""
    script = declines(500)
    async with scripted(script) as a, scripted(script) as b, scripted(script) as c, scripted(script) as d:
        model = single(a.url, b.url, c.url, d.url, transport=transport)
        async with running(model) as dispatch:
            exchange = exchange_of(body_of())
            assert (await ask(dispatch, exchange)).error.status == 500
            assert loads(dispatch) == [0] * 4
        assert [len(worker.seen) for worker in (a, b, c, d)] == [1, 1, 1, 0]
    assert exchange[SERVED].attempts == 3


async def test_a_request_whose_time_is_over_is_not_tried_again(transport: str) -> None:
    """Nobody would wait for the answer."""
    async with scripted(declines(500)) as first, scripted(answer_ok) as second:
        model = single(first.url, second.url, transport=transport, handoff=HandoffConfig(needed_seconds=30))

        async def hold(seen: Seen) -> None:
            job.retries.deadline = monotonic() + 30
            await declines(500)(seen)

        async with running(model) as dispatch:
            exchange = exchange_of(body_of())
            exchange[DEADLINE] = monotonic() + 1000
            job = begin(exchange, dispatch._state.services["m"])
            first.script = hold
            with pytest.raises(WorkerRejection, match="no"):
                await run(job)
            await exchange.release()
        assert (len(first.seen), len(second.seen)) == (1, 0)
