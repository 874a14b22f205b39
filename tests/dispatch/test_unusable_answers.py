"""A worker whose answer cannot be used, or says that it failed: a status for the client, whatever was asked for."""

import pytest

from plugins.slots import WorkerRejection
from tests.dispatch.scripted import OK, Seen, framed, scripted
from tests.dispatch.support import ask, body_of, exchange_of, pools, running, single, told

pytestmark = pytest.mark.anyio

SSE = b"content-type: text/event-stream\r\n"

CHUNKED = b"transfer-encoding: chunked\r\n"


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


async def test_a_stream_that_ends_in_its_first_event_is_no_answer() -> None:
    """Nobody can say whether it was to be an error."""

    async def stream(seen: Seen) -> None:
        await seen.begin_stream(b'data: {"error":{"mess')
        await seen.end_stream()

    async with scripted(stream) as worker, running(single(worker.url)) as dispatch:
        assert (await ask(dispatch, exchange_of(body_of(stream=True)))).error.status == 502


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
