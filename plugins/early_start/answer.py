"""What the rest of the chain gives, while the stream that it is for has begun already."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial
from typing import Final

from attrs import define, field

from kernel import CallNext, Exchange, Outcome, Reply, StreamReply
from plugins.sse import WHOLE

AHEAD: Final = 4
"""Chunks that are taken from the worker before the client has taken those before them."""

_HEADERS: Final = ((b"content-type", b"text/event-stream; charset=utf-8"),)


@define(eq=False)
class BesideStream:
    """What the rest of the chain gives, in a task of its own, as a source that has a ping where it is silent."""

    exchange: Exchange
    call_next: CallNext
    ping: bytes
    interval: float
    _task: "asyncio.Task[None]" = field(init=False)
    _reply: Reply | None = field(default=None, init=False)
    _early: StreamReply | None = field(default=None, init=False)
    _chunks: deque[bytes] = field(factory=deque, init=False)
    _error: BaseException | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)
    _due: bool = field(default=False, init=False)
    _whole: bool = field(default=True, init=False)
    _waiter: "asyncio.Future[None] | None" = field(default=None, init=False)
    _room: "asyncio.Future[None] | None" = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _heard: float = field(default=0.0, init=False)

    async def begin(self, after: float) -> Reply:
        """The reply, or after so many seconds a stream that waits for it."""
        loop = self.exchange.loop
        self.exchange.resources.push(self._settle)
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._finish)
        timer = loop.call_later(after, self._wake)
        try:
            await self._wait()
        finally:
            timer.cancel()
        reply = self._reply
        if reply is None:
            if self._error is not None:
                raise self._error
            self._due = True
            reply = self._early = StreamReply(self, headers=[*_HEADERS])
        if isinstance(reply, StreamReply):
            reply.attach(end=self._end)
            self._heard = loop.time()
            self._timer = loop.call_later(self.interval, self._look)
        return reply

    def __aiter__(self) -> "BesideStream":
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._due:
                self._due = False
                return self.ping
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._wait()
        chunk = self._chunks.popleft()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._whole = chunk.endswith(WHOLE) or (self._whole and not chunk)
        self._heard = self.exchange.loop.time()
        return chunk

    async def _run(self) -> None:
        """Call on, and take the chunks of what is streamed."""
        reply = await self.call_next(self.exchange)
        if isinstance(reply, StreamReply):
            source, reply.source = reply.source, self
            self._join(reply)
            await self._fill(source)
        elif self._early is not None:
            raise TypeError("a request for a stream was answered with none")
        else:
            self._reply = reply

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._ended = True
        self._error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._early is not None and self._error is not None:
            self._early.owner = self.exchange.culprit(self._error) or self._early.owner
            self._chunks.append(b"")  # whoever pumps asks only between two chunks whose fault it is
        self._wake()

    def _join(self, reply: StreamReply) -> None:
        """Keep pings from the links of the reply; a stream that was begun early takes the links over."""
        for link in reply.links:
            if link.step is not None:
                link.step = partial(_pass, self.ping, link.step)
        if self._early is not None and self._early.outcome is None:
            self._early.owner = reply.owner
            self._early.links[:0] = reply.links
            reply.links.clear()
        else:
            self._reply = reply

    async def _fill(self, source: AsyncIterable[bytes]) -> None:
        self._wake()
        async for chunk in source:
            self._chunks.append(chunk)
            self._wake()
            if len(self._chunks) >= AHEAD:
                self._room = self.exchange.loop.create_future()
                await self._room

    async def _wait(self) -> None:
        """Return when there is something to do; who is cancelled meanwhile stops what it waited for."""
        self._waiter = self.exchange.loop.create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look(self) -> None:
        """Have a ping sent if nothing was for so long, and the client has taken what there was."""
        loop = self.exchange.loop
        due = self._heard + self.interval
        if loop.time() < due:
            self._timer = loop.call_at(due, self._look)
            return
        self._timer = loop.call_later(self.interval, self._look)
        if self._waiter is not None and self._whole:
            self._due = True
            self._wake()

    def _end(self, _outcome: Outcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._task.cancel()

    def _settle(self) -> Awaitable[object] | None:
        """Stop the rest of the chain, and wait for its end."""
        return asyncio.wait((self._task,)) if self._task.cancel() else None


def _pass(ping: bytes, step: Callable[[bytes], bytes], chunk: bytes) -> bytes:
    return chunk if chunk is ping else step(chunk)
