"""Streams whose links raise, and how they were written."""

from typing import Any

from kernel import StreamReply
from kernel.testing import Written, build_exchange, read_reply, stream_of

FAULT = ValueError("link")


def fall(*_: object) -> Any:
    """Raise."""
    raise FAULT


def fall_at(marker: bytes) -> Any:
    """A step that raises at a chunk with this in it."""

    def step(chunk: bytes) -> bytes:
        return fall() if marker in chunk else chunk

    return step


def stream(*chunks: bytes | Exception, guarded: bool = False) -> StreamReply:
    """A stream of the plugin `source`, whose plugin `guard` says at the end how it went."""
    reply = StreamReply(stream_of(*chunks))
    reply.claim("source", fail_open=False)
    if guarded:
        reply.attach(close=lambda outcome: f"[{outcome.name}]".encode())
        reply.claim("guard", fail_open=False)
    return reply


async def write(reply: StreamReply) -> Written:
    """Write a stream to a client that reads everything."""
    return await read_reply(reply, build_exchange())


def outcome_of(written: Written) -> tuple[str, BaseException | None, str | None]:
    """Name, error and plugin of the outcome."""
    assert written.outcome is not None
    return written.outcome.name, written.outcome.error, written.outcome.plugin
