"""Plugins that break a stream when a request asks them to bite; `x-bite` says where."""

from collections.abc import AsyncIterator
from typing import Any

from kernel import CallNext, Exchange, Reply, StreamReply
from tests.kernel.support import spec_of


def fall(*_: object) -> Any:
    """Raise."""
    raise ValueError("secret")


LINKS: dict[str, dict[str, Any]] = {
    "step": {"step": fall},
    "late step": {"step": lambda chunk: fall() if b"[DONE]" in chunk else chunk},
    "step returns text": {"step": lambda chunk: chunk.decode()},
    "step returns nothing": {"step": lambda _: None},
    "check": {"check": fall},
    "close": {"close": fall},
    "end": {"end": fall},
}


async def bite(exchange: Exchange, call_next: CallNext) -> Reply:
    """Attach what breaks where the request says."""
    reply = await call_next(exchange)
    where = exchange.headers.get("x-bite")
    if not isinstance(reply, StreamReply) or where is None:
        return reply
    match where:
        case "source":
            reply.source = _broken_source()
        case "source of text":
            reply.source = _text_source()  # type: ignore[assignment]
        case "no source":
            reply.source = None  # type: ignore[assignment]
        case "dropped":
            await anext(aiter(reply.source))
            raise ValueError("secret")
        case _:
            reply.attach(**LINKS[where])
    return reply


async def _broken_source() -> AsyncIterator[bytes]:
    yield b'data: {"choices": []}\n\n'
    raise ValueError("secret")


async def _text_source() -> AsyncIterator[str]:
    yield 'data: {"choices": []}\n\n'


INSIDE = spec_of("animal", bite, after="sse_guard")
OUTSIDE = spec_of("animal", bite, before="sse_guard")
OBSERVER = spec_of("animal", bite, before="sse_guard", fail_open=True)
