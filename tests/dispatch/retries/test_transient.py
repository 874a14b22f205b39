"""Connections that break or are never made: what is tried again, and when the same worker may be."""

import asyncio
from typing import Any

import pytest

from kernel import ClientGone, StreamReply
from kernel.testing import run_chain
from plugins.dispatch.retry import RetryConfig
from plugins.metrics import GENERATION
from plugins.slots import SERVED
from tests.dispatch.counters import Counters
from tests.dispatch.retries.workers import declines, stream
from tests.dispatch.scripted import Seen, answer_ok, die, hang, scripted
from tests.dispatch.support import ask, body_of, exchange_of, loads, pools, running, single, until

pytestmark = pytest.mark.anyio

QUICK = RetryConfig(pause_seconds=0.05)


async def test_a_connection_that_is_not_made_is_tried_elsewhere_and_given_up(transport: str) -> None:
    """As often as there are attempts; the leg ends once in all cases, and is counted once."""
    legs = Counters(GENERATION)
    async with scripted(answer_ok) as a, scripted(answer_ok) as b, scripted(answer_ok) as c, scripted(answer_ok) as d:
        gone, model = (a, b, c), single(a.url, b.url, c.url, d.url, transport=transport)
        async with running(model) as dispatch:
            for worker in gone:
                await worker.stop()
            exchange = exchange_of(body_of())
            error = (await ask(dispatch, exchange)).error
            assert (error.status, error.code) == (503, "no_worker_ready")
            assert exchange[SERVED].workers == [worker.url for worker in gone]
            assert loads(dispatch) == [0] * 4
            assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
        for worker in gone:
            await worker.start()
    assert {name: legs.changes()[name] for name in ("total", "completed", "error")} == {
        "total": 2, "completed": 2, "error": 1,
    }  # fmt: skip


async def test_a_broken_connection_lets_the_same_worker_try_again_if_there_is_no_other(transport: str) -> None:
    """After a pause in which a probe finds it well; what was reset may have been between the two."""
    broken: list[Seen] = []

    async def break_once(seen: Seen) -> None:
        if broken:
            await answer_ok(seen)
        else:
            broken.append(seen)
            await die(seen)

    async with scripted(break_once) as worker:
        async with running(single(worker.url, transport=transport), retry=QUICK) as dispatch:
            exchange = exchange_of(body_of())
            assert (await ask(dispatch, exchange)).json == {"ok": True}
        assert (exchange[SERVED].attempts, exchange[SERVED].workers) == (2, [worker.url] * 2)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_worker_that_answered_is_never_asked_again(status: int, transport: str) -> None:
    """It said what it had to say, and clients know better when to come back."""
    async with scripted(declines(status)) as worker:
        async with running(single(worker.url, transport=transport), retry=QUICK) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of()))).error.status == status
        assert len(worker.seen) == 1


async def test_a_worker_that_breaks_every_time_is_given_up(transport: str) -> None:
    """As soon as after any other failure: workers die of requests.

    TensorRT-LLM's frontend retries broken connections five times, whatever is configured.
    """
    async with scripted(die) as worker:
        async with running(single(worker.url, transport=transport), retry=QUICK) as dispatch:
            exchange = exchange_of(body_of())
            assert (await ask(dispatch, exchange)).error.status == 502
        assert len(worker.seen) == exchange[SERVED].attempts <= 3


async def test_a_client_that_leaves_in_the_pause_leaves_nothing(transport: str) -> None:
    """No worker is held while nobody is asked."""
    config = RetryConfig(pause_seconds=1000.0, max_pause_seconds=1000.0)
    async with scripted(die) as worker, running(single(worker.url, transport=transport), retry=config) as dispatch:
        exchange = exchange_of(body_of())
        task = asyncio.create_task(ask(dispatch, exchange))
        await worker.until(lambda: len(worker.seen) == 1)
        await until(lambda: loads(dispatch) == [0])
        exchange.interrupt(ClientGone())
        with pytest.raises(ClientGone):
            await task
        assert loads(dispatch) == [0]
        await worker.until(lambda: worker.open == 0)


async def test_nothing_is_retried_after_the_first_chunk(transport: str) -> None:
    """The client has seen it, and what another worker says does not go on from there."""

    async def break_off(seen: Seen) -> None:
        await seen.begin_stream(b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n')
        await seen.hang_up()

    async with scripted(break_off) as first, scripted(stream) as second:
        async with running(single(first.url, second.url, transport=transport)) as dispatch:
            exchange = exchange_of(body_of(stream=True))
            answer = await ask(dispatch, exchange)
            assert b"one" in answer.body
            assert b"hello" not in answer.body
        assert (exchange[SERVED].attempts, len(second.seen)) == (1, 0)


async def test_one_attempt_is_all_when_tensorrt_llms_variable_says_so(
    transport: str, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    """Not even a kept connection that had gone is replaced; the log says once that it holds."""
    monkeypatch.setenv("TRTLLM_DISAGG_NO_RETRY", "1")
    async with (
        scripted(answer_ok) as first,
        scripted(answer_ok) as second,
        running(single(first.url, second.url, transport=transport)) as dispatch,
    ):
        for _ in range(2):
            await ask(dispatch, exchange_of(body_of()))
        first.script = die
        exchange = exchange_of(body_of())
        assert (await ask(dispatch, exchange)).error.status == 502
        assert exchange[SERVED].attempts == 1
    assert [line["variable"] for line in logged if line["event"] == "retry.disabled"] == ["TRTLLM_DISAGG_NO_RETRY"]


async def test_a_stream_that_is_closed_before_its_first_chunk_is_read_leaves_nothing(transport: str) -> None:
    """Its load is given back once, also after a retry."""
    legs = Counters(GENERATION)
    async with scripted(declines(500)) as first, scripted(hang) as second:

        async def begin(seen: Seen) -> None:
            await seen.begin_stream(b"data: {}\n\n")
            await seen.until_client_left()

        second.script = begin
        async with running(single(first.url, second.url, transport=transport)) as dispatch:
            exchange = exchange_of(body_of(stream=True))
            reply = await run_chain([dispatch], exchange)
            assert isinstance(reply, StreamReply)
            assert loads(dispatch) == [0, 1]
            await exchange.release()
            assert loads(dispatch) == [0, 0]
            await second.until(lambda: second.open == 0)
            await exchange.release()
    assert {name: legs.changes()[name] for name in ("total", "completed", "error")} == dict.fromkeys(
        ("total", "completed", "error"), 1
    )


async def test_a_request_that_is_cancelled_closes_the_workers_connection(transport: str) -> None:
    """That of the second worker as well as that of the first."""
    async with (
        scripted(declines(500)) as first,
        scripted(hang) as second,
        running(single(first.url, second.url, transport=transport)) as dispatch,
    ):
        exchange = exchange_of(body_of())
        task = asyncio.create_task(ask(dispatch, exchange))
        await second.until(lambda: len(second.seen) == 1)
        exchange.interrupt(ClientGone())
        with pytest.raises(ClientGone):
            await task
        await second.until(lambda: second.open == 0)
        assert [worker.circuit.streak for worker in pools(dispatch)[0].workers] == [1, 0]
