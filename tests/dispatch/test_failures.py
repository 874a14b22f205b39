"""A worker that fails before its answer began: a status that says so, another worker where that is safe."""

import asyncio
import socket
from typing import Any

import pytest

from kernel import Rejection
from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Role
from plugins.slots import SERVED, Payload, WorkerRejection
from tests.dispatch.scripted import OK, ScriptedWorker, Seen, answer_ill, answer_ok, die, framed, hang, scripted
from tests.dispatch.support import ONCE, ask, body_of, exchange_of, pools, running, single

pytestmark = pytest.mark.anyio

SSE = b"content-type: text/event-stream\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"


def told(error: Rejection) -> tuple[int, str | None]:
    """Status and code."""
    return error.status, error.code


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
    ("raw", "stream"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-le", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", False),
        (OK + CHUNKED + b"\r\n" + b'5\r\n{"a":\r\n', False),
        (OK + SSE + CHUNKED + b"\r\n", True),
    ],
)
async def test_an_answer_that_breaks_before_its_first_bytes_is_a_bad_gateway(raw: bytes, stream: bool) -> None:
    """Half an answer is none, and a stream without a byte has not begun."""

    async def break_off(seen: Seen) -> None:
        await seen.send(raw)
        await seen.hang_up()

    async with scripted(break_off) as worker, running(single(worker.url)) as dispatch:
        error = (await ask(dispatch, exchange_of(body_of(stream=stream)))).error
    assert told(error) == (502, "worker_unavailable")


@pytest.mark.parametrize(
    ("raw", "stream"),
    [
        (b"<html>\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", False),
        (OK + b"x: " + b"y" * 200_000 + b"\r\n\r\n", False),
        (OK + b'\r\n{"cut": {}, "here": {}', False),
        (OK + b"content-length: 0\r\n\r\n", False),
        (OK + b"content-length: 12\r\n\r\n<html></html", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", False),
        (OK + SSE + b"content-length: 14\r\n\r\ndata: [DONE]\n\n", False),
        (OK + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", False),
        (OK + b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}", True),
        (OK + b"content-length: 2\r\n\r\n{}", True),
        (OK + SSE + b"content-length: 0\r\n\r\n", True),
        (OK + SSE + CHUNKED + b"\r\n0\r\n\r\n", True),
        (OK + SSE + CHUNKED + b"\r\nzz\r\n", True),
    ],
)
async def test_an_answer_that_cannot_be_used_is_a_bad_gateway(raw: bytes, stream: bool) -> None:
    """What is not the answer that was asked for is never passed on as one."""

    async def answer_raw(seen: Seen) -> None:
        await seen.send(raw)
        await seen.hang_up()

    async with scripted(answer_raw) as worker, running(single(worker.url)) as dispatch:
        error = (await ask(dispatch, exchange_of(body_of(stream=stream)))).error
    assert error.status == 502
    assert error.code in ("worker_error", "worker_unavailable")
    assert "127.0.0.1" not in error.message


async def test_a_worker_that_answers_nonsense_stays_in() -> None:
    """It can be reached, and its next answer may be good."""

    async def nonsense(seen: Seen) -> None:
        await seen.answer(b"{}", "302 Found", "location: http://127.0.0.1:1/")

    async with scripted(nonsense) as worker, running(single(worker.url)) as dispatch:
        assert (await ask(dispatch, exchange_of(body_of()))).error.status == 502
        assert pools(dispatch)[0].workers[0].up is True
        assert worker.open == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_workers_error_keeps_its_status(stream: bool) -> None:
    """Also where a stream was asked for: nothing of it has begun."""

    async def reject(seen: Seen) -> None:
        await seen.answer(b'{"error":{"message":"too many","code":"busy"}}', "429 No", "retry-after: 3")

    async with scripted(reject) as worker, running(single(worker.url)) as dispatch:
        error = (await ask(dispatch, exchange_of(body_of(stream=stream)))).error
        assert pools(dispatch)[0].workers[0].up is True
        await worker.until(lambda: worker.open == 1)
    assert isinstance(error, WorkerRejection)
    assert (error.status, error.message, error.code) == (429, "too many", "busy")
    assert error.headers == (("retry-after", "3"),)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (b'data: {"error":{"message":"no memory","code":503}}\n\n', 503),
        (b'event: error\r\ndata: {"error":{"message":"no memory","code":null}}\r\n\r\n', 500),
        (b'data:{"object":"error","message":"no memory","code":400}\n\ndata: [DONE]\n\n', 400),
    ],
)
async def test_an_error_in_place_of_a_stream_is_a_status(event: bytes, status: int) -> None:
    """Nothing was sent to the client yet, so that it can still be told in the usual way."""

    async def fail(seen: Seen) -> None:
        await seen.begin_stream(event)
        await seen.end_stream()

    async with scripted(fail) as worker, running(single(worker.url)) as dispatch:
        error = (await ask(dispatch, exchange_of(body_of(stream=True)))).error
    assert isinstance(error, WorkerRejection)
    assert (error.status, error.message) == (status, "no memory")


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[{"delta":{"content":"\\"error\\""}}]}\n\n',
        b'data: {"choices":[],"error":null}\n\n',
        b'data: {"error" broken}\n\n',
        b'data: {"error":{"mess',
        b": comment\n\n",
    ],
)
async def test_other_first_events_are_passed_on(event: bytes) -> None:
    """What looks like an error is looked at, and nothing else is judged."""

    async def stream(seen: Seen) -> None:
        await seen.begin_stream(event)
        await seen.end_stream()

    async with scripted(stream) as worker, running(single(worker.url)) as dispatch:
        assert (await ask(dispatch, exchange_of(body_of(stream=True)))).body == event


@pytest.mark.parametrize("cut", [True, False])
async def test_an_error_whose_body_is_cut_or_endless_still_has_its_status(cut: bool) -> None:
    """No more of it is read than an error can need."""

    async def reject(seen: Seen) -> None:
        await seen.send(b"HTTP/1.1 500 No\r\n" + CHUNKED + b"\r\n")
        if cut:
            await seen.send(b'5\r\n{"mes\r\n')
            await seen.hang_up()
            return
        while not seen.reader.at_eof():
            await seen.send(framed(b" " * 1000))

    async with scripted(reject) as worker, running(single(worker.url)) as dispatch:
        error = (await ask(dispatch, exchange_of(body_of()))).error
        await worker.until(lambda: worker.open <= 1)
    assert (error.status, error.message) == (500, "the worker rejected the request with status 500")


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
