"""A worker that fails before its answer began: a status that says so, another worker where that is safe."""

import asyncio
import socket
from typing import Any

import pytest

from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Role
from plugins.slots import SERVED, Payload, WorkerRejection
from tests.dispatch.scripted import ScriptedWorker, Seen, answer_ill, answer_ok, die, hang, scripted
from tests.dispatch.support import ONCE, ask, body_of, exchange_of, pools, running, single, told

pytestmark = pytest.mark.anyio


async def test_another_worker_is_tried_while_nothing_could_be_sent(logged: list[Any]) -> None:
    """A refused connection is no failure of the request; the worker is taken out at once."""
    async with (
        scripted(answer_ok) as gone,
        scripted(answer_ok) as there,
        running(single(gone.url, there.url)) as dispatch,
    ):
        await gone.stop()
        exchange = exchange_of(body_of())
        got = await ask(dispatch, exchange)
        assert got.json == {"ok": True}
        assert exchange[SERVED].workers == [gone.url, there.url]
        assert [worker.up for worker in pools(dispatch)[0].workers] == [False, True]
        await gone.start()
    assert [(line["event"], line["worker"]) for line in logged if line["event"] == "worker.down"] == [
        ("worker.down", gone.url)
    ]


async def test_no_more_than_three_workers_are_tried() -> None:
    """A request does not walk through a whole pool that is gone, and says when to come back."""
    async with asyncio.timeout(10):
        workers = [ScriptedWorker(answer_ok) for _ in range(5)]
        for worker in workers:
            await worker.start()
        async with running(single(*(worker.url for worker in workers))) as dispatch:
            for worker in workers:
                await worker.stop()
            exchange = exchange_of(body_of())
            error = (await ask(dispatch, exchange)).error
        for worker in workers:
            worker.close()
    assert told(error) == (503, "no_worker_ready")
    assert dict(error.headers) == {"retry-after": "60"}
    assert len(set(exchange[SERVED].workers)) == len(exchange[SERVED].workers) == 3
    assert "127.0.0.1" not in error.message


async def test_a_worker_that_was_tried_is_not_tried_again() -> None:
    """Even if a probe has taken it in again meanwhile."""
    async with running(single("http://127.0.0.1:1", "http://127.0.0.1:2")) as dispatch:
        pool = pools(dispatch)[0]
        for worker in pool.workers:
            pool._watch._turn(worker, up=True)
        facts = Facts(Role.GENERATION, Payload(b"", {}))
        reserved = pool.reserve(facts, [pool.workers[0]])
        assert reserved is not None
        assert reserved.worker is pool.workers[1]
        assert pool.reserve(facts, pool.workers) is None
        reserved.release()
        reserved.release()


async def test_without_a_ready_worker_nothing_is_sent() -> None:
    """A worker that failed its first probe is not tried."""
    async with scripted(answer_ok, answer_ill) as worker:
        async with running(single(worker.url)) as dispatch:
            error = (await ask(dispatch, exchange_of(body_of()))).error
        assert worker.seen == []
    assert told(error) == (503, "no_worker_ready")
    assert dict(error.headers) == {"retry-after": "60"}


@pytest.mark.parametrize("stream", [True, False])
async def test_without_retries_a_request_that_was_sent_is_not_sent_to_another_worker(stream: bool) -> None:
    """The first worker may have done the work; whoever does not want it done twice says so."""
    async with scripted(die) as first, scripted(answer_ok) as second:
        async with running(single(first.url, second.url), retry=ONCE) as dispatch:
            error = (await ask(dispatch, exchange_of(body_of(stream=stream)))).error
            assert [worker.up for worker in pools(dispatch)[0].workers] == [False, True]
        assert (len(first.seen), len(second.seen)) == (1, 0)
    assert isinstance(error, WorkerRejection)
    assert told(error) == (502, "worker_unavailable")
    assert "127.0.0.1" not in error.message


@pytest.mark.parametrize(
    ("stream", "limits"),
    [
        (False, {"total_timeout_seconds": 0.05}),
        (True, {"read_timeout_seconds": 0.05}),
    ],
)
async def test_a_worker_that_says_nothing_in_time_is_a_gateway_timeout(stream: bool, limits: dict[str, Any]) -> None:
    """Its connection is closed, so that it stops; it stays in, since a long prompt looks the same."""
    async with scripted(hang) as worker, running(single(worker.url), **limits) as dispatch:
        error = (await ask(dispatch, exchange_of(body_of(stream=stream)))).error
        await worker.until(lambda: worker.open <= 1)
        assert pools(dispatch)[0].workers[0].up is True
    assert told(error) == (504, "worker_timeout")


async def test_a_worker_that_cannot_be_connected_to_in_time_counts_as_refused() -> None:
    """A connection that is never accepted is given up after its own, shorter time."""
    async with scripted(answer_ok) as there:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            url = f"http://127.0.0.1:{full.getsockname()[1]}"
            waiting = [socket.socket() for _ in range(4)]
            for client in waiting:
                client.setblocking(False)
                client.connect_ex(full.getsockname())
            async with running(single(url, there.url), connect_timeout_seconds=0.2) as dispatch:
                pools(dispatch)[0]._watch._turn(pools(dispatch)[0].workers[0], up=True)
                got = await ask(dispatch, exchange_of(body_of()))
            for client in waiting:
                client.close()
    assert got.json == {"ok": True}


async def test_a_large_request_whose_worker_refuses_it_early_gets_the_workers_error() -> None:
    """The answer may come before the body was read; then the connection is not used again."""

    async def refuse_early(seen: Seen) -> None:
        await seen.answer(b'{"message":"too large"}', "413 Too Large", "connection: close")
        await seen.hang_up()

    async with scripted(refuse_early) as worker, running(single(worker.url)) as dispatch:
        error = (await ask(dispatch, exchange_of(body_of(user="x" * 4_000_000)))).error
    assert (error.status, error.message) == (413, "too large")
