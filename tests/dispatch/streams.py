"""Scripts that several tests have their workers play, and a request in the middle of one."""

from typing import Any

from kernel import StreamReply
from kernel.testing import run_chain
from plugins.dispatch.plugin import Dispatch
from tests.dispatch.scripted import Seen, framed
from tests.dispatch.support import body_of, exchange_of, loads

FIRST, SECOND = b"data: 1\n\n", b"data: 2\n\n"
ODD = b'{ "id":1.50,\n "choices" : [] , "x":"\\u00e9"}'


async def stream(seen: Seen) -> None:
    """Stream two chunks, the second one by itself."""
    await seen.begin_stream(FIRST)
    await seen.reader.read(0)
    await seen.send(framed(SECOND))
    await seen.end_stream()


async def stream_and_hang(seen: Seen) -> None:
    """Stream one chunk, then nothing for as long as the client stays."""
    await seen.begin_stream(FIRST)
    await seen.until_client_left()


async def open_stream(dispatch: Dispatch) -> tuple[Any, StreamReply]:
    """A request whose stream has begun."""
    exchange = exchange_of(body_of(stream=True))
    reply = await run_chain([dispatch], exchange)
    assert isinstance(reply, StreamReply)
    assert loads(dispatch) == [1]
    return exchange, reply


async def answer_odd(seen: Seen) -> None:
    """Answer with JSON that no encoder would write like this."""
    await seen.answer(ODD, "200 OK", "content-type: application/json; charset=utf-8", "server: x", "x-host: 10.0.0.5")
