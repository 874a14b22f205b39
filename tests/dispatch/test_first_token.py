"""When the first token of a stream came: not with events that say nothing yet."""

import asyncio

import pytest

from kernel import Endpoint
from kernel.testing import read_reply
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.job import begin
from plugins.dispatch.runner import run
from plugins.endpoints import CHAT_COMPLETIONS, RESPONSES
from plugins.slots import PERFORMANCE, Performance
from tests.dispatch.scripted import Seen, framed, scripted
from tests.dispatch.support import body_of, exchange_of, running, single
from tests.plugins.support import counting

pytestmark = pytest.mark.anyio

ENGINE = OpenAIEngine(apis=("chat_completions", "responses"))
OPENING = b'event: response.created\ndata: {"type":"response.created"}\n\n'
GOES_ON = b'event: response.in_progress\ndata: {"type":"response.in_progress","x":"event: response.a"}\n\n'
TOKEN = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"}\n\n'
FIRST = "gen_first_token_latency_seconds_count"


async def observed(endpoint: Endpoint, *chunks: bytes) -> tuple[bool, bool, bool]:
    """Whether a first token was seen once the first chunk had come, at the end, and by who asked for it."""
    begun = asyncio.Event()

    async def stream(seen: Seen) -> None:
        await seen.begin_stream(chunks[0])
        await begun.wait()
        await seen.send(*map(framed, chunks[1:]))
        await seen.end_stream()

    async with scripted(stream) as worker, running(single(worker.url, engine=ENGINE)) as dispatch:
        exchange = exchange_of(body_of(stream=True), endpoint=endpoint)
        exchange[PERFORMANCE] = Performance()
        with counting() as at_first:
            reply = await run(begin(exchange, dispatch._state.services["m"]))
        begun.set()
        with counting() as later:
            await read_reply(reply, exchange)
        await exchange.release()
    return FIRST in at_first, FIRST in later, exchange[PERFORMANCE].first_token is not None


async def test_a_stream_of_chat_begins_with_its_first_bytes() -> None:
    """Whatever they are."""
    assert await observed(CHAT_COMPLETIONS, OPENING) == (True, False, True)


async def test_a_stream_of_responses_begins_with_what_is_no_opening() -> None:
    """Each time once, and never if nothing but openings came."""
    assert await observed(RESPONSES, OPENING + GOES_ON + TOKEN, TOKEN) == (True, False, True)
    assert await observed(RESPONSES, OPENING + GOES_ON) == (False, False, False)


async def test_the_first_token_of_responses_is_seen_in_a_later_chunk() -> None:
    """The words of an event in the data of another one are none."""
    assert await observed(RESPONSES, OPENING, GOES_ON, TOKEN, TOKEN) == (False, True, True)
    assert await observed(RESPONSES, OPENING, GOES_ON) == (False, False, False)
