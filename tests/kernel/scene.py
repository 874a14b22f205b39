"""A served chain that notes how its requests begin and end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from attrs import define, field

from kernel import (
    CallNext,
    Endpoint,
    Exchange,
    Outcome,
    Reply,
    Runtime,
    StreamReply,
    build_app,
)
from tests.kernel.support import Shelf, serve, spec_of, until

ENDPOINTS = (Endpoint("test", "/test"), Endpoint("unread", "/unread"))


@define
class Scene:
    """What the terminal plugin saw."""

    begun: int = 0
    released: int = 0
    errors: list[BaseException] = field(factory=list)
    outcomes: list[Outcome] = field(factory=list)
    runtime: Runtime = field(init=False)

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Hold something and note how the request ends."""
        self.begun += 1
        exchange.resources.push(self.release)
        try:
            if exchange.endpoint.name == "test":
                await exchange.read(1000)
            reply = await call_next(exchange)
        except BaseException as error:
            self.errors.append(error)
            raise
        if isinstance(reply, StreamReply):
            reply.attach(end=self.outcomes.append)
        return reply

    async def release(self) -> None:
        """Give back."""
        await asyncio.sleep(0)
        self.released += 1

    @asynccontextmanager
    async def play(
        self, shelf: Shelf, answer: Callable[[Exchange, CallNext], Awaitable[Reply]], **options: Any
    ) -> AsyncIterator[int]:
        """Serve; at the end everything must have been given back."""
        self.runtime = shelf.runtime(spec_of("scene", self), spec_of("answer", answer), endpoints=ENDPOINTS)
        async with serve(build_app(self.runtime), **options) as port:
            yield port
            await until(lambda: not self.runtime.serving.exchanges)
            assert self.released == self.begun


async def begin(_exchange: Exchange, _call_next: CallNext) -> Reply:
    """A stream that begins and then waits for ever."""

    async def source() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    return StreamReply(source())
