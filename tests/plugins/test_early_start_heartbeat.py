"""The sign of life for clients of Responses that wait anew for each event, and for no byte: Codex above all."""

import openai
import pytest
from openai.types.responses import ResponseErrorEvent, ResponseFailedEvent

from kernel import Endpoint, Rejection
from kernel import StreamReply as Stream
from plugins.early_start.plugin import EarlyStart
from plugins.endpoints import CHAT_COMPLETIONS, MESSAGES, RESPONSES
from plugins.request_timing.plugin import RequestTiming
from plugins.sse import COMMENT, HEARTBEAT, KEEP_ALIVES, PING
from plugins.sse_guard import SseGuard
from tests.dispatch.transports.clock import Clock
from tests.plugins.streams import WHOLE, Recorded, answering
from tests.plugins.support import chat, counting, parsed
from tests.plugins.waiting import Feed, Slow, asking, move

pytestmark = pytest.mark.anyio

SECONDS = 10.0
EARLY = EarlyStart(SECONDS, SECONDS)
CODEX = {"originator": "codex_exec"}
RECORDED = [recorded for recorded in WHOLE if recorded.endpoint is RESPONSES]


@pytest.mark.parametrize(
    ("endpoint", "headers", "sign"),
    [
        (RESPONSES, {}, COMMENT),
        (RESPONSES, CODEX, HEARTBEAT),
        (RESPONSES, {"Originator": "Codex_CLI_rs"}, HEARTBEAT),
        (RESPONSES, {"originator": "decodex"}, COMMENT),
        (RESPONSES, {"x-early-start": " Events"}, HEARTBEAT),
        (RESPONSES, {"x-early-start": "on"}, COMMENT),
        (CHAT_COMPLETIONS, CODEX, COMMENT),
        (MESSAGES, CODEX, PING),
    ],
)
async def test_who_counts_events_gets_them(
    endpoint: Endpoint, headers: dict[str, str], sign: bytes, clock: Clock
) -> None:
    """Codex is known by its header, and others ask for them; libraries fail on an event that they do not know."""
    exchange = parsed(chat(stream=True), endpoint=endpoint, headers=headers.items())
    work = Slow()
    async with asking(exchange, SseGuard(), EARLY, work) as (client, _):
        await work.begun.wait()
        await move(clock, SECONDS)
        await client.until(sign)
        work.answer(Rejection(503, "no worker is ready"))
    assert client.body.startswith(sign)
    assert sign in KEEP_ALIVES


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
async def test_they_stand_beside_the_events_of_the_answer(recorded: Recorded, clock: Clock) -> None:
    """All of which come as they were, and none is a first token; OpenAI's library reads such a stream to its end."""
    exchange = parsed(chat(stream=True), endpoint=RESPONSES, headers=CODEX.items())
    work, feed = Slow(), Feed()
    with counting() as counted:
        async with asking(exchange, RequestTiming(), SseGuard(), EARLY, work) as (client, _):
            await work.begun.wait()
            await move(clock, SECONDS)
            await client.until(HEARTBEAT)
            assert not [name for name in counted if "first_token" in name]
            work.answer(Stream(feed.put(*recorded.events[:4])))
            begun = HEARTBEAT + b"".join(recorded.events[:4])
            await client.until(begun)
            await move(clock, SECONDS)
            await client.until(begun + HEARTBEAT)
            feed.put(*recorded.events[4:], None)
    assert client.body == begun + HEARTBEAT + b"".join(recorded.events[4:])

    async with answering(client.body) as url, openai.AsyncOpenAI(base_url=url, api_key="x") as library:
        answer = await library.responses.create(model="m", input="x", stream=True)
        kinds: list[str] = [event.type async for event in answer]
    assert kinds.count("keepalive") == 2
    assert kinds[-1] in ("response.completed", "response.incomplete")


async def test_a_stream_that_fails_after_them_has_both_of_its_last_events(clock: Clock) -> None:
    """With the numbers that they would have without any sign of life."""
    exchange = parsed(chat(stream=True), endpoint=RESPONSES, headers=CODEX.items())
    work = Slow()
    async with asking(exchange, SseGuard(), EARLY, work) as (client, _):
        await work.begun.wait()
        await move(clock, SECONDS)
        await client.until(HEARTBEAT)
        work.answer(Rejection(429, "slow down", "rate_limited"))

    async with answering(client.body) as url, openai.AsyncOpenAI(base_url=url, api_key="x") as library:
        answer = await library.responses.create(model="m", input="x", stream=True)
        _, error, failed = [event async for event in answer]
    assert isinstance(error, ResponseErrorEvent)
    assert isinstance(failed, ResponseFailedEvent)
    assert (error.message, error.sequence_number, failed.sequence_number) == ("slow down", 0, 1)
