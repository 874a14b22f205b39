"""The promise of `error_envelope`: every ending has an answer in the API's shape, and is counted once."""

from typing import Any

import orjson
import pytest

from kernel import BytesReply, Exchange, Rejection, Reply
from kernel.testing import Written, read_reply, run_chain
from plugins.error_envelope import ErrorEnvelope
from plugins.slots import InvalidRequest, WorkerRejection
from plugins.sse_guard import SseGuard
from tests.plugins.support import CHAT_STREAM, EVENTS, Worker, counting, parsed, stream

pytestmark = pytest.mark.anyio

SECRET = "secret of http://10.0.0.1:8000"
TOO_LONG = "this model's maximum context length is 8 tokens"
IN_FLIGHT = "kernel_requests_in_flight chat_completions"

INVALID = InvalidRequest(400, "'n' must be an integer", "invalid_type", param="n")
DECLINED = Rejection(429, "slow down", "busy", (("retry-after", "7"),))
WORKER = WorkerRejection(404, "no such adapter", "not_found", kind="NotFoundError")
LENGTH = WorkerRejection(400, TOO_LONG, "context_length_exceeded", kind="BadRequestError", param="messages")
FAULT = ValueError(SECRET)
KINDS = ("invalid", "declined", "worker", "length", "fault")
ERRORS: dict[str, Exception] = dict(zip(KINDS, (INVALID, DECLINED, WORKER, LENGTH, FAULT), strict=True))

OPENAI: dict[str, tuple[str, str, str | None, str | None]] = {
    "invalid": ("'n' must be an integer", "invalid_request_error", "n", "invalid_type"),
    "declined": ("slow down", "rate_limit_error", None, "busy"),
    "worker": ("no such adapter", "NotFoundError", None, "not_found"),
    "length": (TOO_LONG, "BadRequestError", "messages", "context_length_exceeded"),
    "fault": ("internal server error", "server_error", None, "internal_error"),
}
TRTLLM: dict[str, dict[str, Any]] = {
    "invalid": {"error": "'n' must be an integer"},
    "declined": {"detail": "slow down"},
    "worker": {"detail": "no such adapter"},
    "length": {
        "object": "error",
        "message": TOO_LONG,
        "type": "BadRequestError",
        "param": None,
        "code": "context_length_exceeded",
    },
    "fault": {"detail": "Internal server error"},
}
STATUS = {"invalid": 400, "declined": 429, "worker": 404, "length": 400, "fault": 500}
CLASS = {
    "invalid": "invalid_request",
    "declined": "rejected",
    "worker": "worker",
    "length": "worker",
    "fault": "internal",
}
COUNTED: dict[str, dict[str, float]] = {
    "invalid": {},
    "declined": {"http_exceptions_total": 1},
    "worker": {"http_exceptions_total": 1},
    "length": {"http_exceptions_total": 1},
    "fault": {"internal_errors_total": 1},
}


def ended(status: int, error: str | None, model: str = "m") -> dict[str, float]:
    """What the kernel's own counters say of one request."""
    counts: dict[str, float] = {f"kernel_requests_total chat_completions {model} {status}": 1}
    return counts if error is None else counts | {f"kernel_errors_total chat_completions {model} {error}": 1}


async def answer(worker: Worker, exchange: Exchange | None = None, **config: Any) -> tuple[Reply, Written]:
    """The reply of the chain, and what a client got of it."""
    exchange = exchange or parsed()
    reply = await run_chain([ErrorEnvelope(**config), SseGuard(), worker], exchange)
    return reply, await read_reply(reply, exchange)


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("envelope", ["openai", "trtllm"])
async def test_exception_becomes_an_answer(envelope: str, kind: str, served: bool, logged: list[Any]) -> None:
    """Each kind of error has its status, its shape and its counters; only a fault is logged, with its plugin."""
    with counting() as changes:
        reply, written = await answer(Worker(ERRORS[kind], served), envelope=envelope)

    message, type_, param, code = OPENAI[kind]
    openai = {"error": {"message": message, "type": type_, "param": param, "code": code}}
    assert orjson.loads(written.body) == (openai if envelope == "openai" else TRTLLM[kind])
    assert reply.status == STATUS[kind]
    assert (b"content-type", b"application/json") in reply.headers
    assert ((b"retry-after", b"7") in reply.headers) == (kind == "declined")
    assert changes == ended(STATUS[kind], CLASS[kind], "m" if served else "other") | COUNTED[kind]
    assert [(line["event"], line["plugin"]) for line in logged] == [("plugin.failed", "Worker")] * (kind == "fault")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("envelope", ["openai", "trtllm"])
async def test_stream_that_fails_is_counted_as_its_error(envelope: str, kind: str, logged: list[Any]) -> None:
    """An error in mid-stream counts under the status that went out, and is told in the dialect of the stream."""
    with counting() as changes:
        _, written = await answer(Worker(stream(EVENTS[0], ERRORS[kind])), envelope=envelope)

    assert orjson.loads(written.body.split(b"data: ")[-1])["error"]["message"] == OPENAI[kind][0]
    assert written.ended
    assert changes == ended(200, CLASS[kind]) | COUNTED[kind]
    assert [(line["event"], line["plugin"]) for line in logged] == [("plugin.failed", "Worker")] * (kind == "fault")


@pytest.mark.parametrize("envelope", ["openai", "trtllm"])
async def test_fault_stays_here(envelope: str, logged: list[Any]) -> None:
    """The text of a fault is in the log, with its traceback and the request's id, and nowhere in the answer."""
    exchange = parsed()

    reply, written = await answer(Worker(FAULT), exchange, envelope=envelope)

    assert b"secret" not in written.body
    assert b"10.0.0.1" not in b"".join(value for _, value in reply.headers)
    assert logged[0]["exc_info"] is FAULT
    assert logged[0]["request_id"] == exchange.id
    assert logged[0]["log_level"] == "error"


async def test_worker_error_in_a_stream_counts_as_the_workers(logged: list[Any]) -> None:
    """An error event, and an end without a terminal event, are the worker's failures."""
    for chunks in ((b'data: {"error":{"message":"x"}}\n\n', EVENTS[-1]), (EVENTS[0],)):
        with counting() as changes:
            await answer(Worker(stream(*chunks)))

        assert changes == ended(200, "worker") | {"http_exceptions_total": 1}
    assert logged == []


@pytest.mark.parametrize("status", [200, 201, 404])
async def test_reply_passes_and_is_counted(status: int) -> None:
    """An answer that comes from further in goes out as it is."""
    reply = BytesReply(b"{}", status)

    with counting() as changes:
        assert (await answer(Worker(reply)))[0] is reply

    assert changes == ended(status, None)


async def test_whole_stream_is_counted_at_its_end() -> None:
    """A stream counts when its last byte went out, not when it began."""
    exchange = parsed()
    reply = await run_chain([ErrorEnvelope(), SseGuard(), Worker(stream(CHAT_STREAM))], exchange)

    with counting() as changes:
        await read_reply(reply, exchange)

    assert changes == ended(200, None) | {IN_FLIGHT: -1}
