"""How a broken Messages stream ends, and what ends one."""

import orjson
import pytest

from kernel import COMPLETED, FAILED, Rejection
from kernel.testing import Written
from plugins.endpoints import MESSAGES
from plugins.slots import WorkerRejection
from plugins.sse_guard import SseGuard
from tests.plugins.streams import split
from tests.plugins.support import Worker, parsed, serve, stream

pytestmark = pytest.mark.anyio

START = b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","role":"assistant"}}\n\n'
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"text":"x"}}\n\n'
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'


async def guarded(*chunks: bytes | BaseException) -> tuple[str, Written]:
    """The request's id, and what a client gets of a stream of these chunks."""
    exchange = parsed(endpoint=MESSAGES)
    return exchange.id, await serve(exchange, SseGuard(), Worker(stream(*chunks)))


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ConnectionResetError("http://10.0.0.1:8000"), "api_error", "internal server error"),
        (WorkerRejection(502, "the worker broke off"), "api_error", "the worker broke off"),
        (Rejection(503, "the server is shutting down"), "overloaded_error", "the server is shutting down"),
        (Rejection(504, "too late"), "timeout_error", "too late"),
        (
            WorkerRejection(400, "the context is full", "context_length_exceeded"),
            "invalid_request_error",
            "prompt is too long: the context is full",
        ),
    ],
)
async def test_error_has_anthropics_shape(error: Exception, kind: str, message: str) -> None:
    """One event `error` with the request's id, whenever the stream breaks."""
    for chunks in ((), (START,), (START + PING, DELTA[:30])):
        request, written = await guarded(*chunks, error)

        whole = b"".join(chunks).removesuffix(DELTA[:30])
        told = {"type": "error", "error": {"type": kind, "message": message}, "request_id": request}
        assert written.body == whole + b"event: error\ndata: " + orjson.dumps(told) + b"\n\n"


async def test_message_stop_ends_a_stream() -> None:
    """And nothing else does: neither OpenAI's end nor the words in a text."""
    _, written = await guarded(START, PING, DELTA, STOP)
    assert written.body == START + PING + DELTA + STOP
    assert written.outcome is not None
    assert written.outcome.name == COMPLETED

    text = DELTA.replace(b'"x"', b'"event: message_stop\\n\\nevent: error"')
    for other in (
        text,
        b"data: [DONE]\n\n",
        b'event: ping\ndata: {"type":"message_stop"}\n\n',
        b"data: message_stop\n\n",
    ):
        _, written = await guarded(START, other)
        assert written.body.startswith(START + other + b"event: error\n")
        assert written.outcome is not None
        assert written.outcome.name == FAILED


@pytest.mark.parametrize("after", [(), (STOP,), (DELTA, STOP), (b"data: [DONE]\n\n",), (ConnectionResetError("x"),)])
async def test_nothing_follows_a_workers_error(after: tuple[bytes | Exception, ...]) -> None:
    """Its own words pass, and no end that would look clean."""
    _, written = await guarded(START, OVERLOADED, *after)

    assert written.body == START + OVERLOADED
    assert written.outcome is not None
    assert written.outcome.name == FAILED


@pytest.mark.parametrize(
    ("stray", "message"),
    [
        ({"error": {"message": "out of memory at 10.0.0.1:8000"}}, "out of memory at (address)"),
        ({"object": "error", "message": "out of memory", "code": 500}, "out of memory"),
        ({"type": "error", "error": {"type": "api_error", "message": "out of memory"}}, "out of memory"),
    ],
)
async def test_error_without_its_name_gets_one(stray: object, message: str) -> None:
    """Anthropic's libraries pass over events without a name, and would take the stream for whole."""
    request, written = await guarded(START, b"data: " + orjson.dumps(stray) + b"\n\n" + STOP, DELTA)

    told = {"type": "error", "error": {"type": "api_error", "message": message}, "request_id": request}
    assert written.body.startswith(START + b"event: error\n")
    assert split(written.body)[1:] == [(b"error", told)]
    assert written.outcome is not None
    assert written.outcome.name == FAILED
