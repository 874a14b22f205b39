"""Work that takes as long as a test wants, the client that waits for it, and a clock that tests move on by hand."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Self

from attrs import define, field

from kernel import BytesReply, CallNext, Exchange, Outcome, Plugin, Reply, StreamReply
from kernel.testing import run_chain
from kernel.wire import write_bytes, write_stream
from plugins.slots import SERVED, TIMING, Served
from tests.dispatch.transports.clock import Clock
from tests.dispatch.transports.exchange import turns


@define(eq=False)
class Feed:
    """A source that gives what the test has put in: chunks, an error to raise, and None for its end."""

    _parts: "asyncio.Queue[bytes | Exception | None]" = field(factory=asyncio.Queue)
    stopped: bool = False

    def put(self, *parts: bytes | Exception | None) -> Self:
        """Put parts in."""
        for part in parts:
            self._parts.put_nowait(part)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            part = await self._parts.get()
        except asyncio.CancelledError:
            self.stopped = True
            raise
        if part is None:
            raise StopAsyncIteration
        if isinstance(part, Exception):
            raise part
        return part


@define(eq=False)
class Slow:
    """Stands where `dispatch` does, and answers when it is told to."""

    begun: asyncio.Event = field(factory=asyncio.Event)
    stopped: bool = False
    _told: "asyncio.Queue[Reply | BaseException]" = field(factory=asyncio.Queue)

    def answer(self, ending: Reply | BaseException) -> None:
        """Answer, or raise."""
        self._told.put_nowait(ending)

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """End the chain."""
        exchange[SERVED] = Served("m", "openai", ["http://127.0.0.1:9"])
        self.begun.set()
        try:
            ending = await self._told.get()
        except asyncio.CancelledError:
            await turns(9)  # what it holds takes a while to be given back
            self.stopped = True
            raise
        if isinstance(ending, BaseException):
            raise ending
        if (timing := exchange.get(TIMING)) is not None:
            timing.dispatched = timing.answered = exchange.arrived
        return ending


@define(eq=False)
class Client:
    """Is sent an answer, and takes it only while `reads` is set."""

    exchange: Exchange
    reads: asyncio.Event = field(factory=asyncio.Event)
    chunks: list[bytes] = field(factory=list)
    status: int | None = None
    ended: bool = False
    outcome: Outcome | None = None

    def __attrs_post_init__(self) -> None:
        self.reads.set()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """What the server sends."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.reads.wait()
        self.chunks.append(message["body"])
        self.ended = not message.get("more_body", False)

    @property
    def body(self) -> bytes:
        """All that was read."""
        return b"".join(self.chunks)

    async def until(self, body: bytes) -> None:
        """Return when exactly this was read."""
        async with asyncio.timeout(10):
            while len(self.body) < len(body):
                await turns(1)
        assert self.body == body

    async def ask(self, *plugins: Plugin) -> None:
        """Be answered by a chain, as the kernel would answer, and have everything given back."""
        try:
            with self.exchange.interruptible():
                reply = await run_chain(plugins, self.exchange)
            if isinstance(reply, StreamReply):
                self.outcome = await write_stream(reply, self.send, reply.headers, self.exchange)
            else:
                assert isinstance(reply, BytesReply)
                await write_bytes(reply, self.send, reply.headers)
        finally:
            await self.exchange.release()


@asynccontextmanager
async def asking(exchange: Exchange, *plugins: Plugin) -> AsyncIterator[tuple[Client, "asyncio.Task[None]"]]:
    """A client and its request, which must have ended with the block; afterwards no task of it is left."""
    before = asyncio.all_tasks()
    client = Client(exchange)
    task = asyncio.ensure_future(client.ask(*plugins))
    try:
        yield client, task
        async with asyncio.timeout(10):
            await asyncio.wait((task,))
    finally:
        task.cancel()
        await asyncio.wait((task,))
    assert asyncio.all_tasks() == before


async def move(clock: Clock, seconds: float) -> None:
    """Let what is under way go on, then time go by, and the loop see it."""
    await turns(8)
    clock.move(seconds)
    await turns(8)
