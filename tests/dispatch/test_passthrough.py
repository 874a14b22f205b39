"""What goes to a worker that serves whole requests, and what comes back from it."""

import asyncio

import orjson
import pytest

from kernel import BytesReply, StreamReply
from kernel.testing import run_chain
from plugins.dispatch.rejections import ERROR_LIMIT
from plugins.endpoints import COMPLETIONS
from plugins.slots import SERVED, TIMING
from tests.dispatch.scripted import OK, Seen, framed, scripted
from tests.dispatch.streams import ODD, answer_odd
from tests.dispatch.support import ask, body_of, exchange_of, running, single

pytestmark = pytest.mark.anyio


EVENTS = [b'data: {"a":"\xc3', b'\xa9"}\n', b"\ndata: [DO", b"NE]\n\n"]


async def stream_events(seen: Seen) -> None:
    """Stream events, cut anywhere."""
    await seen.begin_stream(*EVENTS)
    await seen.end_stream()


async def test_the_workers_bytes_come_back_unchanged() -> None:
    """Body, status and content type are the worker's; its other headers stay inside."""
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        answer = await ask(dispatch, exchange_of(body_of()))
    assert isinstance(answer.reply, BytesReply)
    assert (answer.reply.status, answer.body) == (200, ODD)
    assert answer.reply.headers == [(b"content-type", b"application/json; charset=utf-8")]


async def test_the_clients_bytes_go_out_unchanged() -> None:
    """Nothing is parsed and written anew on the way to the worker."""
    raw = body_of(temperature=1.50, user="é")
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(raw, endpoint=COMPLETIONS))
    assert worker.seen[0].line == "POST /v1/completions HTTP/1.1"
    assert worker.seen[0].body == raw


async def test_a_path_before_the_api_is_kept() -> None:
    """A worker behind a proxy has its address in a path; its probes go there too."""
    async with scripted(answer_odd) as worker, running(single(f"{worker.url}/models/a/")) as dispatch:
        await ask(dispatch, exchange_of(body_of()))
    assert worker.seen[0].line == "POST /models/a/v1/chat/completions HTTP/1.1"


async def test_a_stream_comes_back_unchanged() -> None:
    """Bytes are passed on as they come, wherever they are cut, and whatever they say."""
    async with scripted(stream_events) as worker, running(single(worker.url)) as dispatch:
        answer = await ask(dispatch, exchange_of(body_of(stream=True)))
    assert isinstance(answer.reply, StreamReply)
    assert answer.body == b"".join(EVENTS)
    assert answer.reply.headers == [(b"content-type", b"text/event-stream; charset=utf-8")]


async def test_chunks_are_passed_on_when_they_come() -> None:
    """Once the first event is whole, which may be an error: each is passed on before the worker sends the next."""
    chunks = [b'data: {"a":0}\n\n', *EVENTS]
    turns: asyncio.Queue[None] = asyncio.Queue()

    async def one_by_one(seen: Seen) -> None:
        await seen.begin_stream()
        for chunk in chunks:
            await seen.send(framed(chunk))
            await turns.get()
        await seen.end_stream()

    async with scripted(one_by_one) as worker, running(single(worker.url)) as dispatch:
        exchange = exchange_of(body_of(stream=True))
        reply = await run_chain([dispatch], exchange)
        assert isinstance(reply, StreamReply)
        got = []
        async for chunk in reply.source:
            got.append(chunk)
            turns.put_nowait(None)
        await exchange.release()
    assert got == chunks


async def test_what_arrived_together_is_passed_on_together() -> None:
    """Chunks that wait are joined: one write for each would cost more than all the rest."""

    async def burst(seen: Seen) -> None:
        await seen.send(
            OK
            + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            + b"".join(map(framed, EVENTS))
            + b"0\r\n\r\n"
        )

    async with scripted(burst) as worker, running(single(worker.url)) as dispatch:
        answer = await ask(dispatch, exchange_of(body_of(stream=True)))
    assert answer.written is not None
    assert [chunk for chunk in answer.written.chunks if chunk] == [b"".join(EVENTS)]


async def test_an_alias_is_sent_as_the_models_own_name() -> None:
    """Workers know the model by one name, and many answer 404 for any other."""
    async with scripted(answer_odd) as worker, running(single(worker.url, aliases=("gpt-4o",))) as dispatch:
        exchange = exchange_of(body_of(model="gpt-4o"))
        await ask(dispatch, exchange)
    assert orjson.loads(worker.seen[0].body) == orjson.loads(body_of())
    assert exchange[SERVED].model == "m"


async def test_a_request_leaves_its_traces() -> None:
    """Who served it, and when it was sent and answered, is there for the log and the metrics."""
    async with scripted(answer_odd) as worker, running(single(worker.url)) as dispatch:
        exchange = exchange_of(body_of())
        await ask(dispatch, exchange)
    served, timing = exchange[SERVED], exchange[TIMING]
    assert (served.model, served.engine, served.workers, served.attempts) == ("m", "openai", [worker.url], 1)
    assert timing.dispatched is not None
    assert timing.answered is not None
    assert timing.arrived <= timing.dispatched <= timing.answered


@pytest.mark.parametrize("size", [ERROR_LIMIT, 3 * 1024 * 1024])
async def test_large_bodies_pass_whole(size: int) -> None:
    """Neither direction has a limit below that of the client's body."""

    async def echo(seen: Seen) -> None:
        await seen.answer(seen.body)

    raw = body_of(user="x" * size)
    async with scripted(echo) as worker, running(single(worker.url)) as dispatch:
        answer = await ask(dispatch, exchange_of(raw))
    assert answer.body == raw
