"""How a broken Responses stream ends, to the byte, and what ends one."""

import asyncio

import orjson
import pytest

from kernel import CLIENT_GONE, COMPLETED, FAILED, Rejection
from kernel.testing import Written
from plugins.endpoints import RESPONSES
from plugins.slots import WorkerRejection
from plugins.sse_guard import SseGuard
from tests.plugins.streams import split
from tests.plugins.support import Worker, left_in_stream, parsed, serve, stream

pytestmark = pytest.mark.anyio

STATE: dict[str, object] = {"id": "resp_1", "status": "in_progress", "error": None, "output": [], "metadata": {}}
CREATED = b"event: response.created\ndata: " + orjson.dumps(
    {"type": "response.created", "sequence_number": 0, "response": STATE}
) + b"\n\n"  # fmt: skip
DELTA = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"x"}\n\n'
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
LENGTH = WorkerRejection(400, "the context is full", "context_length_exceeded")


def ending(name: str) -> bytes:
    """An event that ends a stream."""
    return f'event: {name}\ndata: {{"type":"{name}","sequence_number":2}}\n\n'.encode()


def error_event(code: str, message: str, number: int) -> bytes:
    """The event that ends a broken stream."""
    told = f'{{"type":"error","code":"{code}","message":"{message}","param":null,"sequence_number":{number}}}'
    return f"event: error\ndata: {told}\n\n".encode()


async def guarded(*chunks: bytes | BaseException) -> Written:
    """What a client gets of a stream of these chunks."""
    return await serve(parsed(endpoint=RESPONSES), SseGuard(), Worker(stream(*chunks)))


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConnectionResetError("http://10.0.0.1:8000"), "internal_error", "ConnectionResetError"),
        (WorkerRejection(502, "the worker broke off", "worker_error"), "upstream_error", "the worker broke off"),
        (
            Rejection(503, "the server is shutting down", "shutting_down"),
            "shutting_down",
            "the server is shutting down",
        ),
        (Rejection(504, "too late"), "internal_error", "too late"),
        (LENGTH, "context_length_exceeded", "the context is full"),
    ],
)
async def test_error_before_anything_came(error: Exception, code: str, message: str) -> None:
    """One event, number 0; of a fault only its type is told."""
    written = await guarded(error)

    assert written.body == error_event(code, message, 0)
    assert written.outcome is not None
    assert written.outcome.error is error


@pytest.mark.parametrize("error", [WorkerRejection(502, "gone", "worker_error"), LENGTH], ids=["gone", "too long"])
async def test_answer_that_was_begun_is_told_to_have_failed(error: Rejection) -> None:
    """After the error comes the last state of the answer, as workers end their own."""
    written = await guarded(CREATED, DELTA, error)

    code = error.code if error is LENGTH else "upstream_error"
    assert written.body.startswith(CREATED + DELTA + error_event(str(code), error.message, 2))
    name, failed = split(written.body)[-1]
    why = {"code": error.code if error is LENGTH else "server_error", "message": error.message}
    assert name == b"response.failed"
    state = STATE | {"status": "failed", "error": why}
    assert failed == {"type": "response.failed", "sequence_number": 3, "response": state}


@pytest.mark.parametrize("cut", range(1, len(CREATED + DELTA)))
async def test_number_is_that_of_whole_events(cut: int) -> None:
    """However the events were cut into chunks, the blank line between them too."""
    body = CREATED + DELTA

    written = await guarded(body[:cut], body[cut:], WorkerRejection(502, "gone"))

    assert written.body.startswith(body + error_event("upstream_error", "gone", 2))


async def test_comments_are_no_events() -> None:
    """What keeps a connection alive has no number."""
    written = await guarded(b": alive\n\n", CREATED, b": alive\n\n: still\n\n" + DELTA, WorkerRejection(502, "gone"))

    assert error_event("upstream_error", "gone", 2) in written.body


@pytest.mark.parametrize("lacks", [1, 2])
async def test_unfinished_event_is_closed_before_the_error(lacks: int) -> None:
    """What lacks only its blank line gets one; it is not counted."""
    written = await guarded(CREATED, DELTA[:-lacks], WorkerRejection(502, "gone"))

    assert written.body.startswith(CREATED + DELTA[:-lacks] + b"\n\n" + error_event("upstream_error", "gone", 1))


@pytest.mark.parametrize("part", [DELTA[:3], DELTA[:20], DELTA[:34], DELTA[:60], DELTA[:-4]])
async def test_unfinished_event_that_no_client_could_read_is_dropped(part: bytes) -> None:
    """A client that found half a JSON text would fail before it came to the error."""
    written = await guarded(CREATED, part, WorkerRejection(502, "gone"))

    assert written.body.startswith(CREATED + error_event("upstream_error", "gone", 1))


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("named", [True, False])
async def test_nothing_follows_what_ends_a_stream(name: str, named: bool) -> None:
    """Also without an event's line: clients look at the type inside. A worker's own failure counts as one."""
    last = ending(name) if named else ending(name).partition(b"\n")[2]

    for after in ((), (ConnectionResetError("x"),)):
        written = await guarded(CREATED + last, *after)
        assert written.body == CREATED + last
        assert written.outcome is not None
        clean = not after and name in ("response.completed", "response.incomplete")
        assert written.outcome.name == (COMPLETED if clean else FAILED)


@pytest.mark.parametrize("name", ENDS)
async def test_the_words_inside_data_end_nothing(name: str) -> None:
    """Neither in a text nor on a further line of data."""
    text = orjson.dumps({"type": "response.output_text.delta", "delta": f"event: {name}\n\ntype: {name}"})
    deltas = b"event: response.output_text.delta\ndata: " + text + b"\n\n"

    written = await guarded(CREATED, deltas, b"data: event: " + name.encode() + b"\n\n")

    assert error_event("upstream_error", "the stream ended before the answer was complete", 3) in written.body


@pytest.mark.parametrize(
    ("stray", "message"),
    [
        ({"error": {"message": "out of memory at http://10.0.0.1:8000/v1", "code": 500}}, "out of memory at (address)"),
        ({"object": "error", "message": "out of memory", "code": 500}, "out of memory"),
        ({"error": "out of memory"}, "the worker ended the stream with an error"),
    ],
)
async def test_error_of_another_api_is_told_in_this_one(stray: object, message: str) -> None:
    """No client of Responses would see it; what follows, such as another API's end, is kept back with it."""
    chunk = DELTA + b"data: " + orjson.dumps(stray) + b"\n\ndata: [DONE]\n\n"

    for chunks in ((CREATED + chunk,), (CREATED, chunk[:-20], chunk[-20:]), (CREATED, chunk, DELTA)):
        written = await guarded(*chunks)
        assert written.body.startswith(CREATED + DELTA + error_event("engine_error", message, 2))
        assert split(written.body)[-1][0] == b"response.failed"
        assert b"[DONE]" not in written.body
        assert written.outcome is not None
        assert written.outcome.name == FAILED


async def test_client_that_left_gets_nothing_more() -> None:
    """Neither an error nor a blank line."""
    exchange = parsed(endpoint=RESPONSES)

    written = await serve(exchange, SseGuard(), Worker(left_in_stream(exchange, CREATED, DELTA[:-2])))

    assert written.body == CREATED
    assert written.outcome is not None
    assert written.outcome.name == CLIENT_GONE


async def test_cancelled_stream_gets_nothing_more() -> None:
    """The cancellation goes on as it came."""
    exchange = parsed(endpoint=RESPONSES)
    reply = stream(CREATED, asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await serve(exchange, SseGuard(), Worker(reply))

    assert reply.outcome is not None
