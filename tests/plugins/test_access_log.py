"""The promise of `access_log`: one line for each request, whatever its ending, and nothing private in it."""

import asyncio
from typing import Any

import pytest

from kernel import BytesReply, CallNext, ClientGone, Exchange, Rejection, Reply
from kernel.testing import build_exchange, read_reply, run_chain
from plugins.access_log import AccessLog
from plugins.endpoints import MODELS
from plugins.error_envelope import ErrorEnvelope
from plugins.slots import CONVERSATION, SERVED, TIMING, TRACE, Conversation, Timing
from plugins.sse_guard import SseGuard
from tests.plugins.support import CHAT_STREAM, EVENTS, Worker, chat, left_in_stream, parsed, stream

pytestmark = pytest.mark.anyio

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRETS = ("Bearer s3cret", "the prompt", "the conversation", "the parent")


async def line_of(worker: Worker, logged: list[Any], exchange: Exchange | None = None) -> dict[str, Any]:
    """The one line that is logged of a request that ends so."""
    exchange = exchange or parsed()
    try:
        reply = await run_chain([AccessLog(), ErrorEnvelope(), SseGuard(), worker], exchange)
        assert not logged or logged[-1]["event"] == "plugin.failed"
        await read_reply(reply, exchange)
    except (ClientGone, asyncio.CancelledError):
        pass
    await exchange.release()
    (line,) = [line for line in logged if line["event"] == "request.finished"]
    found: dict[str, Any] = line
    return found


@pytest.mark.parametrize(
    ("ending", "status", "outcome", "level"),
    [
        (BytesReply(b"{}"), 200, "completed", "info"),
        (BytesReply(b"{}", 404), 404, "rejected", "info"),
        (BytesReply(b"{}", 502), 502, "failed", "warning"),
        (Rejection(429, "slow down"), 429, "rejected", "info"),
        (Rejection(503, "no worker"), 503, "failed", "warning"),
        (ValueError("x"), 500, "failed", "warning"),
        (ClientGone("left"), 499, "client_gone", "info"),
        (asyncio.CancelledError(), 499, "cancelled", "info"),
    ],
)
async def test_one_line_for_an_answer(ending: Any, status: int, outcome: str, level: str, logged: list[Any]) -> None:
    """Every ending before or with a whole answer is one line with the status that the client got."""
    line = await line_of(Worker(ending), logged)

    assert (line["status"], line["outcome"], line["log_level"]) == (status, outcome, level)


@pytest.mark.parametrize("same", [False, True])
async def test_the_id_that_workers_were_told_is_logged_if_it_is_another(same: bool, logged: list[Any]) -> None:
    """So that their logs can be read beside this one."""
    exchange = parsed(headers=[("x-request-id", "r-1")])

    class Told(Worker):
        async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
            reply = await super().__call__(exchange, call_next)
            exchange[SERVED].request_id = exchange.id if same else "w-1"
            return reply

    line = await line_of(Told(BytesReply(b"{}")), logged, exchange)

    assert (line["request_id"], line.get("worker_request_id")) == ("r-1", None if same else "w-1")


@pytest.mark.parametrize(
    ("chunks", "outcome", "level"),
    [
        ((CHAT_STREAM,), "completed", "info"),
        ((EVENTS[0],), "failed", "warning"),
        ((EVENTS[0], ValueError("x")), "failed", "warning"),
        ((EVENTS[0], asyncio.CancelledError()), "cancelled", "info"),
    ],
)
async def test_one_line_for_a_stream(chunks: tuple[Any, ...], outcome: str, level: str, logged: list[Any]) -> None:
    """A stream's line comes at its end, with the status that went out and with how it ended."""
    line = await line_of(Worker(stream(*chunks)), logged)

    assert (line["status"], line["outcome"], line["log_level"]) == (200, outcome, level)


async def test_one_line_for_a_client_that_left_its_stream(logged: list[Any]) -> None:
    """A hang-up in mid-stream is status 499."""
    exchange = parsed()

    line = await line_of(Worker(left_in_stream(exchange, EVENTS[0])), logged, exchange)

    assert (line["status"], line["outcome"], line["log_level"]) == (499, "client_gone", "info")


@pytest.mark.parametrize(("gone", "status", "outcome"), [(False, 200, "never_begun"), (True, 499, "client_gone")])
async def test_one_line_for_a_stream_never_begun(gone: bool, status: int, outcome: str, logged: list[Any]) -> None:
    """A stream that nobody wrote has a line too."""
    exchange = parsed()
    await run_chain([AccessLog(), Worker(stream(CHAT_STREAM))], exchange)
    if gone:
        exchange.interrupt(ClientGone("left"))

    await exchange.release()

    (line,) = logged
    assert (line["status"], line["outcome"]) == (status, outcome)


@pytest.mark.parametrize(("error", "status"), [(ValueError("x"), 500), (Rejection(401, "who are you"), 401)])
async def test_line_without_an_envelope(error: Exception, status: int, logged: list[Any]) -> None:
    """What no plugin answers is logged with the status that the kernel's own last answer has."""
    exchange = parsed()
    with pytest.raises(type(error)):
        await run_chain([AccessLog(), Worker(error)], exchange)

    await exchange.release()

    assert [line["status"] for line in logged] == [status]


async def test_line_says_who_served(logged: list[Any]) -> None:
    """The line has the endpoint, the model, the workers, the times, the ids of request and trace."""
    exchange = parsed(chat(stream=True))
    exchange.scope["client"] = ("127.0.0.1", 4711)
    exchange[TIMING] = Timing(exchange.arrived)
    exchange[TRACE] = (("traceparent", TRACEPARENT),)

    line = await line_of(Worker(BytesReply(b"{}")), logged, exchange)

    assert line["seconds"] >= line["first_byte_seconds"] >= 0
    assert line == line | {
        "endpoint": "chat_completions",
        "stream": True,
        "model": "m",
        "engine": "openai",
        "workers": ["http://127.0.0.1:9"],
        "request_id": exchange.id,
        "trace_id": TRACEPARENT[3:35],
        "client": "127.0.0.1",
    }


async def test_line_of_a_request_that_got_nowhere_is_short(logged: list[Any]) -> None:
    """What is not known is left out."""
    line = await line_of(Worker(BytesReply(b"{}"), served=False), logged, build_exchange(MODELS))

    assert line["client"] is None
    assert line.keys() == {
        "endpoint", "status", "outcome", "seconds", "request_id", "client", "event", "log_level",
    }  # fmt: skip


async def test_line_has_nothing_private(logged: list[Any]) -> None:
    """No header, no text of the request and no conversation is logged; only where the conversation was found."""
    exchange = parsed(chat(user=SECRETS[1]), headers=[("authorization", SECRETS[0])])
    exchange[CONVERSATION] = Conversation(SECRETS[2], "x-session-id", SECRETS[3])

    line = await line_of(Worker(BytesReply(b"{}")), logged, exchange)

    assert line["conversation_from"] == "x-session-id"
    assert not any(secret in str(line) for secret in SECRETS)


async def test_line_comes_after_everything_was_given_back(logged: list[Any]) -> None:
    """What the request held is given back before the line is written, so its seconds cover all."""
    exchange = parsed()
    held: list[int] = []
    reply = await run_chain([AccessLog(), Worker(BytesReply(b"{}"))], exchange)
    exchange.resources.push(lambda: held.append(len(logged)))

    await read_reply(reply, exchange)

    assert held == [0]
    assert len(logged) == 1
