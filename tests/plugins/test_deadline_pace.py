"""The promises of `deadline` about streams: how long one may take to begin, and to say nothing."""

import pytest

from kernel import COMPLETED, BytesReply, Rejection, StreamReply
from kernel.testing import run_chain
from plugins.deadline import Deadline
from plugins.sse import COMMENT, PING
from tests.dispatch.transports.clock import Clock
from tests.plugins.support import EVENTS, Worker, chat, parsed
from tests.plugins.test_deadline import told
from tests.plugins.waiting import Client, Feed, Slow, asking, move

pytestmark = pytest.mark.anyio

LIMIT = 60.0


def error_of(client: Client) -> tuple[int, str | None]:
    """Why a stream failed."""
    assert client.outcome is not None
    assert isinstance(client.outcome.error, Rejection), client.outcome
    return told(client.outcome.error)


async def test_a_stream_that_does_not_begin_is_given_up(clock: Clock) -> None:
    """Before there is a reply that is a status."""
    work, exchange = Slow(), parsed(chat(stream=True))
    async with asking(exchange, Deadline(first_byte_seconds=LIMIT), work) as (_, task):
        await work.begun.wait()
        await move(clock, LIMIT + 1)
    error = task.exception()
    assert isinstance(error, Rejection)
    assert told(error) == (504, "first_byte_timeout")
    assert work.stopped


@pytest.mark.parametrize("nothing", [PING, COMMENT, b""])
async def test_signs_of_life_are_no_first_byte(clock: Clock, nothing: bytes) -> None:
    """Nor is what is held back: a stream that was begun early fails within itself."""
    feed, exchange = Feed().put(nothing), parsed(chat(stream=True))
    async with asking(exchange, Deadline(first_byte_seconds=LIMIT), Worker(StreamReply(feed))) as (client, _):
        await client.until(nothing)
        await move(clock, LIMIT + 1)
    assert error_of(client) == (504, "first_byte_timeout")
    assert feed.stopped


async def test_whole_answers_have_no_first_byte(clock: Clock) -> None:
    """What is not streamed has its deadline alone."""
    work, exchange = Slow(), parsed()
    async with asking(exchange, Deadline(first_byte_seconds=LIMIT, silence_seconds=LIMIT), work) as (client, _):
        await work.begun.wait()
        await move(clock, 10 * LIMIT)
        work.answer(BytesReply(b"{}"))
    assert client.body == b"{}"


async def test_a_stream_that_falls_silent_is_given_up(clock: Clock) -> None:
    """Each chunk buys as long again; the kernel's own signs of life buy nothing."""
    feed, exchange = Feed(), parsed(chat(stream=True))
    deadline = Deadline(first_byte_seconds=LIMIT, silence_seconds=LIMIT)
    async with asking(exchange, deadline, Worker(StreamReply(feed))) as (client, _):
        for number, event in enumerate(EVENTS[:3], 1):
            feed.put(event)
            await client.until(b"".join(EVENTS[:number]))
            await move(clock, LIMIT - 1)
        feed.put(COMMENT)
        await client.until(b"".join((*EVENTS[:3], COMMENT)))
        await move(clock, 2)
    assert error_of(client) == (504, "silence_timeout")
    assert feed.stopped


async def test_a_slow_reader_is_no_silence(clock: Clock) -> None:
    """The worker is not waited for while its client takes what there is."""
    feed, exchange = Feed().put(EVENTS[0]), parsed(chat(stream=True))
    async with asking(exchange, Deadline(silence_seconds=LIMIT), Worker(StreamReply(feed))) as (client, _):
        await client.until(EVENTS[0])
        client.reads.clear()
        feed.put(EVENTS[1])
        for _ in range(5):
            await move(clock, LIMIT)
        feed.put(*EVENTS[2:], None)
        client.reads.set()
    assert client.body == b"".join(EVENTS)
    assert client.outcome is not None
    assert client.outcome.name == COMPLETED


async def test_silence_counts_from_the_first_byte(clock: Clock) -> None:
    """A long prefill is the other limit's matter."""
    feed, exchange = Feed(), parsed(chat(stream=True))
    async with asking(exchange, Deadline(silence_seconds=LIMIT), Worker(StreamReply(feed))) as (client, _):
        await move(clock, 10 * LIMIT)
        feed.put(*EVENTS, None)
    assert client.body == b"".join(EVENTS)


async def test_limits_of_streams_set_no_deadline() -> None:
    """Dispatch and its retries know of the whole request's alone."""
    exchange = parsed(chat(stream=True))
    await run_chain([Deadline(first_byte_seconds=LIMIT)], exchange, StreamReply(Feed()))
    await exchange.release()
    assert exchange.reason is None
