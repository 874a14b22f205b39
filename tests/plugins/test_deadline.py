"""The promise of `deadline`: no request takes longer than its client or the operator waits."""

import asyncio

import pytest

from kernel import FAILED, BytesReply, Exchange, Rejection, StreamReply
from kernel.testing import run_chain
from plugins.deadline import Deadline
from plugins.endpoints import CHAT_COMPLETIONS, MESSAGES, MODELS, RESPONSES
from plugins.error_envelope import ErrorEnvelope
from plugins.slots import DEADLINE
from plugins.sse_guard import SseGuard
from tests.plugins.support import EVENTS, Worker, chat, parsed
from tests.plugins.waiting import Feed, Slow, asking

pytestmark = pytest.mark.anyio

SOON = 0.02
LATER = 1000.0


def told(error: Rejection) -> tuple[int, str | None]:
    """Status and code."""
    return error.status, error.code


async def limit_of(seconds: float | None, *headers: tuple[str, str]) -> float | None:
    """How many seconds after its arrival a request has to be complete."""
    exchange = parsed(headers=headers)
    await run_chain([Deadline(seconds), Worker(BytesReply(b"{}"))], exchange)
    await exchange.release()
    deadline = exchange.get(DEADLINE)
    return None if deadline is None else round(deadline - exchange.arrived, 9)


LIMITS = [
    (None, [], None),
    (60.0, [], 60.0),
    (None, [("x-request-timeout", "30")], 30.0),
    (60.0, [("X-Request-Timeout", "2.5")], 2.5),
    (60.0, [("x-request-timeout", "61")], 60.0),
    (None, [("grpc-timeout", "2H")], 7200.0),
    (None, [("grpc-timeout", "3M")], 180.0),
    (None, [("grpc-timeout", "4S")], 4.0),
    (None, [("grpc-timeout", "99999999m")], 99999.999),
    (None, [("grpc-timeout", "5000000u")], 5.0),
    (None, [("grpc-timeout", "99999999n")], 0.099999999),
    (60.0, [("grpc-timeout", "2M")], 60.0),
    (None, [("x-request-timeout", "9"), ("grpc-timeout", "8S")], 8.0),
    (None, [("x-request-timeout", "7"), ("x-request-timeout", "9")], 7.0),
]


@pytest.mark.parametrize(("seconds", "headers", "limit"), LIMITS)
async def test_clients_lower_the_limit_and_never_raise_it(
    seconds: float | None, headers: list[tuple[str, str]], limit: float | None
) -> None:
    """The smallest of what the operator and the client's headers say holds, from the request's arrival on."""
    assert await limit_of(seconds, *headers) == limit


MALFORMED = ["", "0", "0.0", "-1", "+1", "1e3", "inf", "nan", "5s", " 5", "5,6", "9" * 10, "9" * 5000, "1.", "\u00b2"]
MALFORMED_GRPC = ["", "0S", "5", "S", "5s", "5 S", "-5S", "1.5S", "999999999S", "5SS", "5S,6S"]


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("x-request-timeout", value) for value in MALFORMED), *(("grpc-timeout", value) for value in MALFORMED_GRPC)],
)
async def test_a_limit_that_cannot_be_read_is_declined(name: str, value: str) -> None:
    """The client would else wait for what nobody ends; the message names the header and repeats nothing of it."""
    exchange = parsed(headers=[(name, value)])
    with pytest.raises(Rejection) as caught:
        await run_chain([Deadline(), Worker(BytesReply(b"{}"))], exchange)

    assert told(caught.value) == (400, "invalid_header")
    assert name in str(caught.value)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["seconds", "first_byte_seconds", "silence_seconds"])
def test_a_limit_is_above_zero_and_finite(name: str, seconds: float) -> None:
    """No value says that there is none."""
    with pytest.raises(ValueError, match=name):
        Deadline(**{name: seconds})


async def test_without_a_limit_nothing_is_set() -> None:
    """The reply passes as it came, and the exchange holds nothing for it."""
    exchange, reply = parsed(), StreamReply(Feed())
    assert await run_chain([Deadline()], exchange, reply) is reply
    assert DEADLINE not in exchange
    assert not exchange.resources._releases


async def test_work_that_takes_too_long_is_stopped() -> None:
    """It is cancelled, and the client gets 504 in its own dialect."""
    work = Slow()
    exchange = parsed(endpoint=MESSAGES)
    async with asking(exchange, ErrorEnvelope(), Deadline(SOON), work) as (client, _):
        pass

    assert work.stopped
    assert client.status == 504
    assert b'"type":"timeout_error","message":"the answer was not complete within 0.02 s"' in client.body


async def test_a_request_that_came_too_late_costs_no_work() -> None:
    """Its body took so long that its deadline has passed."""
    work, exchange = Slow(), parsed()
    exchange.arrived -= LATER
    with pytest.raises(Rejection) as caught:
        await run_chain([Deadline(LATER - 1), work], exchange)

    assert told(caught.value) == (504, "deadline_exceeded")
    assert not work.begun.is_set()


async def test_requests_that_ask_no_model_have_a_deadline_too() -> None:
    """It is no matter of streams."""
    exchange = parsed(endpoint=MODELS, headers=[("x-request-timeout", str(SOON))])
    with pytest.raises(Rejection) as caught:
        await run_chain([Deadline(), Slow()], exchange)
    assert told(caught.value) == (504, "deadline_exceeded")
    await exchange.release()


@pytest.mark.parametrize(
    ("endpoint", "begin", "end"),
    [
        (CHAT_COMPLETIONS, EVENTS[0], b'data: {"error":{"message":"the answer was not complete within 0.02 s"'),
        (MESSAGES, b'event: message_start\ndata: {"type":"message_start"}\n\n', b'event: error\ndata: {"type":"error"'),
        (RESPONSES, b'event: response.created\ndata: {"response":{}}\n\n', b"event: error\ndata: {"),
    ],
)
async def test_a_stream_that_takes_too_long_ends_in_an_error(endpoint: Exchange, begin: bytes, end: bytes) -> None:
    """What was whole has gone out, then comes the terminal event of its API; the source was stopped."""
    feed = Feed().put(begin)
    exchange = parsed(chat(stream=True), endpoint=endpoint)  # type: ignore[arg-type]
    async with asking(exchange, Deadline(SOON), SseGuard(), Worker(StreamReply(feed))) as (client, _):
        pass

    assert feed.stopped
    assert client.body.startswith(begin + end)
    assert client.ended
    assert client.outcome is not None
    assert client.outcome.name == FAILED
    assert isinstance(client.outcome.error, Rejection)
    assert told(client.outcome.error) == (504, "deadline_exceeded")


async def test_a_deadline_that_is_not_reached_leaves_no_timer() -> None:
    """A request is forgotten when it is over."""
    exchange = parsed(chat(stream=True))
    async with asking(exchange, Deadline(LATER, LATER, LATER), Worker(StreamReply(Feed().put(*EVENTS, None)))):
        pass

    scheduled = [timer for timer in exchange.loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    assert not [timer for timer in scheduled if timer.when() > exchange.loop.time() + LATER / 2]


async def test_whose_reason_comes_first_stands() -> None:
    """A shutdown before the deadline is told as one."""
    work, exchange = Slow(), parsed()
    task = asyncio.ensure_future(run_chain([Deadline(LATER), work], exchange))
    await work.begun.wait()
    exchange.interrupt(Rejection(503, "the server is shutting down"))
    with pytest.raises(Rejection, match="shutting down"):
        await task
    await exchange.release()
