"""The promise of `early_start` within a stream: signs of life in silence, and nowhere else."""

import anthropic
import openai
import pytest
from openai.types.responses import ResponseErrorEvent, ResponseFailedEvent

from kernel import COMPLETED, CallNext, Exchange, Reply, StreamReply
from plugins.early_start.answer import AHEAD
from plugins.early_start.plugin import EarlyStart
from plugins.endpoints import RESPONSES
from plugins.request_timing.plugin import RequestTiming
from plugins.slots import WorkerRejection
from plugins.sse import COMMENT, KEEP_ALIVES, PING
from plugins.sse_guard import SseGuard
from tests.dispatch.transports.clock import Clock
from tests.plugins.streams import WHOLE, Recorded, answering
from tests.plugins.support import DONE, EVENTS, Worker, chunk, counting
from tests.plugins.test_early_start import AFTER, EARLY, INTERVAL, sign_of, streamed
from tests.plugins.waiting import Client, Feed, Slow, asking, move

pytestmark = pytest.mark.anyio


async def alarmed(exchange: Exchange, call_next: CallNext) -> Reply:
    """Stand further in, where no sign of life may be seen."""
    reply = await call_next(exchange)
    assert isinstance(reply, StreamReply)
    reply.attach(step=lambda chunk: b"seen" if chunk in KEEP_ALIVES else chunk)
    return reply


async def interrupted(recorded: Recorded, clock: Clock, *, early: bool) -> Client:
    """A client of a stream that is silent before each of its events; before the first one too, if it begins early."""
    feed, work, sign = Feed(), Slow(), sign_of(recorded)
    expected = b""
    async with asking(streamed(recorded.endpoint), SseGuard(), EARLY, alarmed, work) as (client, _):
        await work.begun.wait()
        if early:
            await move(clock, AFTER)
            expected = sign
            await client.until(expected)
        work.answer(StreamReply(feed))
        for event in recorded.events:
            await move(clock, INTERVAL)
            expected += sign
            await client.until(expected)
            feed.put(event)
            expected += event
            await client.until(expected)
        feed.put(None)
    assert client.outcome is not None
    assert client.outcome.name == COMPLETED
    return client


@pytest.mark.parametrize("recorded", WHOLE, ids=lambda recorded: recorded.name)
@pytest.mark.parametrize("early", [False, True])
async def test_every_silence_has_its_sign_of_life(recorded: Recorded, clock: Clock, early: bool) -> None:
    """Between any two events of any grammar, and none of the events is changed."""
    await interrupted(recorded, clock, early=early)


@pytest.mark.parametrize("recorded", [r for r in WHOLE if "messages" in r.name], ids=lambda recorded: recorded.name)
async def test_anthropic_library_takes_pings_anywhere(recorded: Recorded, clock: Clock) -> None:
    """Before `message_start` and between any two events."""
    body = (await interrupted(recorded, clock, early=True)).body
    assert body.startswith(PING)
    async with (
        answering(body) as url,
        anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="x") as client,
    ):
        asked = client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}], stream=True
        )
        seen = [event.type async for event in await asked]
    assert (seen[0], seen[-1]) == ("message_start", "message_stop")
    assert len(seen) == len(recorded.events)


@pytest.mark.parametrize("recorded", [r for r in WHOLE if "chat" in r.name], ids=lambda recorded: recorded.name)
async def test_openai_library_takes_comments_anywhere(recorded: Recorded, clock: Clock) -> None:
    """It sees none of them."""
    body = (await interrupted(recorded, clock, early=True)).body
    async with answering(body) as url, openai.AsyncOpenAI(base_url=url, api_key="x") as client:
        answer = await client.chat.completions.create(model="m", messages=[], stream=True)
        seen = [event async for event in answer]
    assert len(seen) == len(recorded.events) - 1


async def test_responses_that_failed_early_end_as_their_clients_look_for(clock: Clock) -> None:
    """Both of the last events, of an answer that nobody had begun."""
    work, exchange = Slow(), streamed(RESPONSES)
    async with asking(exchange, SseGuard(), EARLY, work) as (got, _):
        await work.begun.wait()
        await move(clock, AFTER)
        work.answer(WorkerRejection(400, "the prompt is too long", "context_length_exceeded"))
    async with answering(got.body) as url, openai.AsyncOpenAI(base_url=url, api_key="x") as client:
        error, failed = [e async for e in await client.responses.create(model="m", input="x", stream=True)]
    assert isinstance(error, ResponseErrorEvent)
    assert isinstance(failed, ResponseFailedEvent)
    assert failed.response.id == f"resp_{exchange.id}"
    assert failed.response.status == "failed"
    assert failed.response.error is not None
    assert (error.code, str(failed.response.error.code)) == ("context_length_exceeded", "context_length_exceeded")


async def test_no_sign_of_life_in_the_middle_of_an_event(clock: Clock) -> None:
    """A client would read it as a part of the event."""
    feed = Feed().put(EVENTS[0][:20])
    async with asking(streamed(), SseGuard(), EARLY, Worker(StreamReply(feed))) as (client, _):
        for _ in range(3):
            await move(clock, INTERVAL)
        feed.put(EVENTS[0][20:])
        await client.until(EVENTS[0])
        feed.put(*EVENTS[1:], None)
    assert client.body == b"".join(EVENTS)


async def test_no_sign_of_life_for_a_client_that_does_not_read(clock: Clock) -> None:
    """Nothing piles up, neither of these nor of the worker's: it is not read from any further."""
    events = [chunk(str(number)) for number in range(4 * AHEAD)]
    feed = Feed()
    async with asking(streamed(), SseGuard(), EARLY, Worker(StreamReply(feed))) as (client, _):
        await move(clock, 0)
        client.reads.clear()
        feed.put(*events)
        for _ in range(5):
            await move(clock, INTERVAL)
        assert feed._parts.qsize() == len(events) - AHEAD - 1
        client.reads.set()
        await client.until(b"".join(events))
        feed.put(*EVENTS, None)
    assert client.body == b"".join((*events, *EVENTS))


async def test_signs_of_life_are_no_tokens(clock: Clock) -> None:
    """Neither the first one nor any other."""
    feed, work = Feed(), Slow()
    with counting() as counted:
        async with asking(streamed(), RequestTiming(), SseGuard(), EARLY, work) as (client, _):
            await work.begun.wait()
            await move(clock, AFTER)
            work.answer(StreamReply(feed.put(EVENTS[0])))
            await client.until(COMMENT + EVENTS[0])
            await move(clock, INTERVAL)
            await client.until(COMMENT + EVENTS[0] + COMMENT)
            feed.put(EVENTS[1] + DONE, None)
    assert counted["kernel_time_to_first_token_seconds_count chat_completions m"] == 1
    assert counted["kernel_inter_token_seconds_count chat_completions m"] == 1


async def test_a_stream_that_speaks_has_no_signs_of_life(clock: Clock) -> None:
    """Each chunk is one."""
    feed = Feed()
    async with asking(streamed(), SseGuard(), EarlyStart(AFTER, INTERVAL), Worker(StreamReply(feed))) as (client, _):
        for number, event in enumerate(EVENTS, 1):
            feed.put(event)
            await client.until(b"".join(EVENTS[:number]))
            await move(clock, INTERVAL - 1)
        feed.put(None)
    assert COMMENT not in client.body
