"""The middleware gives back what an exchange held, once, whatever its ending."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from kernel import (
    BytesReply,
    CallNext,
    ClientGone,
    Exchange,
    KernelMiddleware,
    Rejection,
    Reply,
    StreamReply,
)
from kernel.testing import stream_of
from tests.kernel.support import Call, Request, Shelf, spec_of, turn

pytestmark = pytest.mark.anyio


async def other(scope: MutableMapping[str, Any], _receive: Any, send: Any) -> None:
    """The application behind the middleware."""
    if scope["type"] != "http":
        await send({"type": scope["type"]})
        return
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b"passed by"})


async def answer(exchange: Exchange, _call_next: CallNext) -> Reply:
    """Answer with the endpoint's name."""
    return BytesReply(exchange.endpoint.name.encode())


async def app_of(shelf: Shelf, call: Call = answer, **options: Any) -> KernelMiddleware:
    """The middleware around one plugin."""
    runtime = shelf.runtime(spec_of("answer", call), **options)
    await runtime.start()
    return KernelMiddleware(other, runtime=runtime)


class BaseFault(BaseException):
    """Something that is no Exception."""


def ending(what: Any) -> Call:
    """A plugin that holds something and ends in one of many ways."""

    async def end(exchange: Exchange, _call_next: CallNext) -> Reply:
        exchange.resources.push(lambda: released.append(exchange.id))
        if isinstance(what, BaseException):
            raise what
        reply: Reply = what() if callable(what) else what
        return reply

    return end


released: list[str] = []


@pytest.mark.parametrize(
    "what",
    [
        lambda: BytesReply(b"x"),
        lambda: StreamReply(stream_of(b"x")),
        lambda: StreamReply(stream_of(b"x", ValueError("broken"))),
        None,
        ValueError("x"),
        Rejection(429, "later"),
        ClientGone("gone"),
        BaseFault(),
        asyncio.CancelledError(),
    ],
)
async def test_an_exchange_is_released_on_every_ending(shelf: Shelf, what: object) -> None:
    """Once, and the next request is served."""
    released.clear()
    app = await app_of(shelf, ending(what))
    for number in (1, 2):
        running = asyncio.create_task(Request(app, headers=(("x-request-id", str(number)),)).run())
        await asyncio.wait((running,))
        if not running.cancelled():
            running.exception()
    assert released == ["1", "2"]
    assert app._runtime.serving.exchanges == set()


async def test_an_exchange_is_released_when_the_server_cancels_it(shelf: Shelf) -> None:
    """And the cancellation goes on."""

    async def wait(exchange: Exchange, _call_next: CallNext) -> Reply:
        exchange.resources.push(lambda: released.append(exchange.id))
        await asyncio.Event().wait()
        raise AssertionError

    released.clear()
    app = await app_of(shelf, wait)
    running = asyncio.create_task(Request(app, headers=(("x-request-id", "1"),)).run())
    await turn()
    assert len(app._runtime.serving.exchanges) == 1
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()
    assert released == ["1"]
    assert app._runtime.serving.exchanges == set()


async def test_what_is_held_is_released_after_the_last_byte(shelf: Shelf) -> None:
    """Of a stream, too."""
    request: Request

    async def stream(exchange: Exchange, _call_next: CallNext) -> Reply:
        exchange.resources.push(lambda: seen.append(request.ended))
        return StreamReply(stream_of(b"x", b"y"))

    seen: list[bool] = []
    request = Request(await app_of(shelf, stream))
    await request.run()
    assert seen == [True]


async def test_a_client_that_left_gets_no_answer(shelf: Shelf) -> None:
    """And no error is logged for it."""
    request = await Request(await app_of(shelf, ending(ClientGone("gone")))).run()
    assert (request.status, request.chunks) == (None, [])
