"""Plugins that break the contract of a call when a request asks them to bite, and are fine otherwise."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kernel import BytesReply, CallNext, ClientGone, DataReply, Exchange, PluginSpec, Rejection, Reply
from plugins.slots import MODEL, PAYLOAD, STREAM
from tests.kernel.support import spec_of

Call = Callable[[Exchange, CallNext], Awaitable[Any]]


class BaseFault(BaseException):
    """Something that is no Exception."""


async def _raise_before(_exchange: Exchange, _call_next: CallNext) -> Reply:
    raise ValueError("secret")


async def _raise_after(exchange: Exchange, call_next: CallNext) -> Reply:
    await call_next(exchange)
    raise ValueError("secret")


async def _call_twice(exchange: Exchange, call_next: CallNext) -> Reply:
    await call_next(exchange)
    return await call_next(exchange)


async def _call_twice_at_once(exchange: Exchange, call_next: CallNext) -> Reply:
    replies = await asyncio.gather(call_next(exchange), call_next(exchange))
    return replies[0]


async def _return_none(exchange: Exchange, call_next: CallNext) -> Any:
    await call_next(exchange)


async def _return_text(exchange: Exchange, call_next: CallNext) -> Any:
    await call_next(exchange)
    return "secret"


async def _return_coroutine(exchange: Exchange, call_next: CallNext) -> Any:
    return asyncio.ensure_future(call_next(exchange))


async def _never_call_on(_exchange: Exchange, _call_next: CallNext) -> Reply:
    return DataReply({"own": True}, 202)


async def _return_what_cannot_be_encoded(_exchange: Exchange, _call_next: CallNext) -> Reply:
    return DataReply({"own": object()})


async def _decline(_exchange: Exchange, _call_next: CallNext) -> Reply:
    raise Rejection(451, "not here", "law", [("retry-after", "9")])


async def _claim_client_gone(_exchange: Exchange, _call_next: CallNext) -> Reply:
    raise ClientGone("it says")


async def _raise_base(_exchange: Exchange, _call_next: CallNext) -> Reply:
    raise BaseFault("secret")


async def _cancel_itself(_exchange: Exchange, _call_next: CallNext) -> Reply:
    raise asyncio.CancelledError


async def _swallow_cancellation(exchange: Exchange, call_next: CallNext) -> Reply:
    try:
        with exchange.interruptible():
            exchange.watch()
            await asyncio.Event().wait()
    except BaseException:
        return BytesReply(b"still here")
    return await call_next(exchange)


async def _swallow_errors(exchange: Exchange, call_next: CallNext) -> Reply:
    try:
        await call_next(exchange)
        raise KeyError("own")
    except Exception:
        return DataReply({"swallowed": True})


async def _put_nonsense_into_slots(exchange: Exchange, call_next: CallNext) -> Reply:
    for slot in (PAYLOAD, MODEL, STREAM):
        exchange[slot] = object()  # type: ignore[misc]
    exchange[PAYLOAD] = None  # type: ignore[misc]
    return await call_next(exchange)


async def _give_back_badly(exchange: Exchange, call_next: CallNext) -> Reply:
    async def later() -> None:
        raise ValueError("release")

    exchange.resources.push(lambda: 1 / 0)
    exchange.resources.push(later)
    exchange.resources.push(_cancelled)
    return await call_next(exchange)


def _cancelled() -> "asyncio.Future[None]":
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


async def _never_give_back(exchange: Exchange, call_next: CallNext) -> Reply:
    exchange.resources.push(lambda: asyncio.Event().wait())
    return await call_next(exchange)


async def _send_bad_status(_exchange: Exchange, _call_next: CallNext) -> Reply:
    return BytesReply(b"x", 99)


def _send_header(name: Any, value: Any) -> Call:
    async def send_header(exchange: Exchange, call_next: CallNext) -> Reply:
        reply = await call_next(exchange)
        reply.headers.append((name, value))
        return reply

    return send_header


def _biting(call: Call, **options: Any) -> PluginSpec:
    """The spec of a plugin that does this to a request that asks for it, and passes the others on."""

    async def animal(exchange: Exchange, call_next: CallNext) -> Any:
        return await (call if "x-bite" in exchange.headers else _pass_on)(exchange, call_next)

    return spec_of("animal", animal, **{"after": "template_guard", **options})


async def _pass_on(exchange: Exchange, call_next: CallNext) -> Reply:
    return await call_next(exchange)


RAISES_BEFORE = _biting(_raise_before)
RAISES_AFTER = _biting(_raise_after)
CALLS_TWICE = _biting(_call_twice)
CALLS_TWICE_AT_ONCE = _biting(_call_twice_at_once)
RETURNS_NONE = _biting(_return_none)
RETURNS_TEXT = _biting(_return_text)
RETURNS_COROUTINE = _biting(_return_coroutine)
NEVER_CALLS_ON = _biting(_never_call_on)
UNENCODABLE = _biting(_return_what_cannot_be_encoded)
DECLINES = _biting(_decline)
CLAIMS_CLIENT_GONE = _biting(_claim_client_gone)
RAISES_BASE = _biting(_raise_base)
CANCELS_ITSELF = _biting(_cancel_itself)
SWALLOWS_CANCELLATION = _biting(_swallow_cancellation)
SWALLOWS_ERRORS = _biting(_swallow_errors)
NONSENSE_IN_SLOTS = _biting(_put_nonsense_into_slots)
GIVES_BACK_BADLY = _biting(_give_back_badly)
NEVER_GIVES_BACK = _biting(_never_give_back)
OBSERVER_RAISES_BEFORE = _biting(_raise_before, fail_open=True)
OBSERVER_RAISES_AFTER = _biting(_raise_after, fail_open=True)
OBSERVER_RETURNS_NONE = _biting(_return_none, fail_open=True)
OUTERMOST_RAISES = _biting(_raise_before, after=None, before="trace_span")
OUTERMOST_DECLINES = _biting(_decline, after=None, before="trace_span")
OUTERMOST_SENDS_DATA = _biting(_never_call_on, after=None, before="trace_span")
BAD_STATUS = _biting(_send_bad_status)
HEADER_INJECTION = _biting(_send_header(b"x-a", b"1\r\nset-cookie: stolen=1"))
HEADER_NAME_INJECTION = _biting(_send_header(b"x-a: 1\r\nset-cookie", b"stolen=1"))
TEXT_HEADER = _biting(_send_header("x-a", "1"))
HUGE_HEADER = _biting(_send_header(b"x-a", b"a" * 1024 * 1024))
SECOND_LENGTH = _biting(_send_header(b"content-length", b"3"))
