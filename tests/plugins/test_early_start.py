"""The promise of `early_start`: a stream that waits for its answer has begun already, and loses nothing by it."""

import asyncio

import pytest
from attrs import frozen

from kernel import CLIENT_GONE, COMPLETED, FAILED, BytesReply, CallNext, ClientGone, Exchange, Rejection, Reply
from kernel import StreamReply as Stream
from kernel.testing import run_chain
from plugins.access_log import AccessLog
from plugins.disconnect_watch import DisconnectWatch
from plugins.early_start.plugin import EarlyStart
from plugins.endpoints import CHAT_COMPLETIONS, COUNT_TOKENS, MESSAGES, MODELS
from plugins.error_envelope import ErrorEnvelope
from plugins.request_timing.plugin import RequestTiming
from plugins.slots import STREAM
from plugins.sse import COMMENT, PING
from plugins.sse_guard import SseGuard
from tests.dispatch.transports.clock import Clock
from tests.plugins.streams import WHOLE, Recorded
from tests.plugins.support import CHAT_STREAM, EVENTS, chat, counting, parsed
from tests.plugins.waiting import Feed, Slow, asking, move

pytestmark = pytest.mark.anyio

AFTER, INTERVAL = 10.0, 15.0
EARLY = EarlyStart(AFTER, INTERVAL)
each_stream = pytest.mark.parametrize("recorded", WHOLE, ids=lambda recorded: recorded.name)


def streamed(endpoint: object = CHAT_COMPLETIONS, **headers: str) -> Exchange:
    """A request for a stream."""
    return parsed(chat(stream=True), endpoint=endpoint, headers=headers.items())  # type: ignore[arg-type]


def sign_of(recorded: Recorded) -> bytes:
    """The sign of life of a grammar."""
    return PING if recorded.endpoint.grammar == "anthropic" else COMMENT


@each_stream
async def test_a_stream_begins_before_its_answer(recorded: Recorded, clock: Clock) -> None:
    """First a sign of life, then the worker's bytes as they came; plugins further in see nothing of the former."""
    work, seen = Slow(), list[bytes]()
    exchange = streamed(recorded.endpoint)

    def see(chunk: bytes) -> bytes:
        seen.append(chunk)
        return chunk

    async def observer(exchange: Exchange, call_next: CallNext) -> Reply:
        reply = await call_next(exchange)
        assert isinstance(reply, Stream)
        reply.attach(step=see)
        return reply

    async with asking(exchange, SseGuard(), EARLY, observer, work) as (client, _):
        await work.begun.wait()
        await move(clock, AFTER)
        await client.until(sign_of(recorded))
        work.answer(Stream(Feed().put(*recorded.events, None)))
    assert client.status == 200
    assert client.body == sign_of(recorded) + recorded.body
    assert b"".join(seen) == recorded.body
    assert client.outcome is not None
    assert client.outcome.name == COMPLETED


async def test_an_answer_in_time_is_passed_as_it_is(clock: Clock) -> None:
    """Its status and its headers too, and no sign of life is needed."""
    work, exchange = Slow(), streamed()
    reply = Stream(Feed().put(*EVENTS, None), headers=[(b"x-a", b"b")])
    async with asking(exchange, SseGuard(), EARLY, work) as (client, _):
        await work.begun.wait()
        await move(clock, AFTER - 1)
        work.answer(reply)
        await client.until(CHAT_STREAM)
    assert client.body == CHAT_STREAM
    assert reply.headers == [(b"x-a", b"b")]


@pytest.mark.parametrize("early", [False, True])
async def test_a_failure_is_a_status_before_and_an_event_after(early: bool, clock: Clock) -> None:
    """What began with 200 fails within itself, in the log as well."""
    work, exchange = Slow(), streamed(MESSAGES)
    with counting() as counted:
        async with asking(exchange, ErrorEnvelope(), SseGuard(), EARLY, work) as (client, _):
            await work.begun.wait()
            if early:
                await move(clock, AFTER)
                await client.until(PING)
            work.answer(Rejection(429, "slow down", headers=[("retry-after", "3")]))
    assert client.status == (200 if early else 429)
    assert b'{"type":"rate_limit_error","message":"slow down"}' in client.body
    assert client.body.startswith(PING + b"event: error\ndata: " if early else b'{"type":"error"')
    assert counted[f"kernel_requests_total messages m {client.status}"] == 1
    assert counted["kernel_errors_total messages m rejected"] == 1


async def test_a_late_fault_is_its_plugins(clock: Clock) -> None:
    """The client is told nothing of it, and the log who it was."""
    work, exchange = Slow(), streamed()
    async with asking(exchange, SseGuard(), EARLY, work) as (client, _):
        await work.begun.wait()
        await move(clock, AFTER)
        await client.until(COMMENT)
        work.answer(KeyError("secret"))
    assert b"secret" not in client.body
    assert b"internal_error" in client.body
    assert client.outcome is not None
    assert (client.outcome.name, client.outcome.plugin) == (FAILED, "Slow")


async def test_an_answer_that_is_no_stream_comes_too_late(clock: Clock) -> None:
    """It cannot be sent any more, and is no clean end."""
    work, exchange = Slow(), streamed()
    async with asking(exchange, SseGuard(), EARLY, work) as (client, _):
        await work.begun.wait()
        await move(clock, AFTER)
        work.answer(BytesReply(b'{"a":1}'))
    assert client.outcome is not None
    assert client.outcome.name == FAILED
    assert b"internal_error" in client.body


OFF = [
    (EarlyStart(), streamed),
    (EarlyStart(AFTER, apis=("anthropic",)), streamed),
    (EARLY, parsed),
    (EARLY, lambda: streamed(**{"x-early-start": "off"})),
    (EARLY, lambda: streamed(**{"X-Early-Start": " OFF "})),
    (EARLY, lambda: streamed(COUNT_TOKENS)),
    (EARLY, lambda: parsed(endpoint=MODELS)),
]


@pytest.mark.parametrize(("plugin", "ask"), OFF)
async def test_who_wants_plain_statuses_gets_them(plugin: EarlyStart, ask: object) -> None:
    """Off is the default; what is not streamed, not named, or asked for otherwise costs no task."""
    exchange: Exchange = ask()  # type: ignore[operator]
    reply, before = Stream(Feed()), asyncio.all_tasks()
    source = reply.source

    async def look(exchange: Exchange, call_next: CallNext) -> Reply:
        assert asyncio.all_tasks() == before
        return await call_next(exchange)

    assert await run_chain([plugin, look], exchange, reply) is reply
    assert reply.source is source
    assert not exchange.resources._releases


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["after_seconds", "interval_seconds"])
def test_durations_are_above_zero_and_finite(name: str, value: float) -> None:
    """Only the first may be null, which switches the plugin off."""
    with pytest.raises(ValueError, match=name):
        EarlyStart(**{name: value})  # type: ignore[arg-type]  # by name


async def test_no_more_than_a_begun_stream_is_a_response(clock: Clock) -> None:
    """A client that leaves in the silence is logged with 499 and no first token, and its work is stopped."""
    work, exchange = Slow(), streamed()
    chain = (AccessLog(), ErrorEnvelope(), RequestTiming(), SseGuard(), EARLY, DisconnectWatch(), work)
    with counting() as counted:
        async with asking(exchange, *chain) as (client, _):
            await work.begun.wait()
            await move(clock, AFTER)
            await client.until(COMMENT)
            exchange.interrupt(ClientGone("the client hung up"))
    assert work.stopped
    assert client.outcome is not None
    assert client.outcome.name == CLIENT_GONE
    assert counted["kernel_requests_total chat_completions m 499"] == 1
    assert not [name for name in counted if "first_token" in name]


@pytest.mark.parametrize("early", [False, True])
async def test_a_shutdown_is_told(early: bool, clock: Clock) -> None:
    """As a status before, within the stream after; the work is stopped."""
    work, exchange = Slow(), streamed()
    async with asking(exchange, ErrorEnvelope(), SseGuard(), EARLY, DisconnectWatch(), work) as (client, _):
        await work.begun.wait()
        if early:
            await move(clock, AFTER)
            await client.until(COMMENT)
        exchange.interrupt(Rejection(503, "the server is shutting down"))
    assert work.stopped
    assert client.status == (200 if early else 503)
    assert b"the server is shutting down" in client.body
    assert client.ended


async def test_a_cancelled_request_stops_its_work() -> None:
    """A cancellation stays one, and nothing is left when the exchange was released."""
    work, exchange = Slow(), streamed()
    async with asking(exchange, EARLY, work) as (_, task):
        await work.begun.wait()
        task.cancel()
    assert task.cancelled()
    assert work.stopped


@frozen
class Failing:
    """Fails once it has a reply."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Call on, and fail."""
        await call_next(exchange)
        raise KeyError("outside")


@pytest.mark.parametrize("early", [False, True])
async def test_a_stream_that_is_never_begun_stops_its_work(early: bool, clock: Clock) -> None:
    """A plugin further out fails: what was begun beside it ends with the exchange."""
    work, feed, exchange = Slow(), Feed(), streamed()
    async with asking(exchange, ErrorEnvelope(), Failing(), EARLY, work) as (client, _):
        await work.begun.wait()
        if early:
            await move(clock, AFTER)
        else:
            work.answer(Stream(feed))
    assert client.status == 500
    assert work.stopped if early else feed.stopped
    assert exchange[STREAM]
