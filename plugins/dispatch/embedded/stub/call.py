"""One request being answered: the ways to answer it, and the places where a fault breaks the answer."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TypeVar

import orjson
from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.endings import ConnectionCut, Stopped
from plugins.dispatch.embedded.stub.faults import FaultRule
from plugins.dispatch.embedded.stub.ledger import Received

T = TypeVar("T")


@define(eq=False)
class Stream:
    """What is to be streamed, and what comes after it: the end marker, or an error in place of the rest."""

    events: AsyncGenerator[bytes, None]
    end: Callable[[], bytes]
    failure: Callable[[], bytes | None]


@define(eq=False)
class Call:
    """A request with its record, its fault, and what has been sent so far.

    It is `settled` when nothing is held for it elsewhere any more, and `stopped` when somebody asked for that.
    `cleared` is set when the faults that there were at its start are cleared.
    """

    request: web.BaseRequest
    received: Received
    exit: Callable[[], None]
    refusing: Callable[[], bool]
    cleared: asyncio.Event
    fault: FaultRule | None = None
    slow: float = 0.0
    body: dict[str, object] = field(factory=dict)
    headers: Callable[[], Mapping[str, str]] = dict
    response: web.StreamResponse | None = None
    cut: bool = False
    settled: bool = False
    stopped: asyncio.Event = field(factory=asyncio.Event)
    _pausing: "asyncio.Future[None] | None" = field(default=None, init=False)

    def has_fault(self, kind: str) -> bool:
        """Whether the request has to suffer this kind of fault."""
        return self.fault is not None and self.fault.kind == kind

    async def send_json(self, payload: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer with one JSON document."""
        kinds = {"Content-Type": "application/json", **(headers or {})}
        await self.send_bytes(orjson.dumps(payload, default=str), status, kinds)

    async def send_bytes(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        """Answer with a whole body, or with the half of it that a fault leaves."""
        response = self._open(status, headers)
        response.content_length = len(body)
        writer = await response.prepare(self.request)
        if writer is not None and self.has_fault("die_after_headers"):
            writer.send_headers()
            self.break_connection(reset=True)
        if self.request.method == "HEAD":
            await response.write_eof()
            return
        if self.has_fault("cut_mid_event") or self.has_fault("exit"):
            await response.write(body[: len(body) // 2])
            self._die()
        if self.has_fault("stall"):
            await response.write(body[: len(body) // 2])
            await self.cleared.wait()
            body = body[len(body) // 2 :]
        await response.write(body)
        await response.write_eof()

    async def send_stream(self, stream: Stream) -> None:
        """Answer with server-sent events and their end, or up to where a fault breaks them."""
        response = self._open(200, {"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        writer = await response.prepare(self.request)
        if writer is not None:
            writer.send_headers()
        if self.has_fault("die_after_headers"):
            self.break_connection(reset=True)
        sent = 0
        async with aclosing(stream.events) as events:
            async for event in events:
                if self._breaks_at(sent):
                    await self._break_stream(response, event, stream)
                    return
                await self._stall_at(sent)
                await response.write(event)
                sent += 1
        # A break that was to come after more events than there were comes at the end marker.
        if self.fault is not None and self.fault.kind in {"cut_mid_event", "exit", "error_event"}:
            await self._break_stream(response, stream.end(), stream)
            return
        await self._stall_at(sent, last=True)
        if not self.has_fault("end_without_done"):
            await response.write(stream.end())
        await response.write_eof()

    def stop(self) -> None:
        """Make the worker stop working on the request."""
        self.stopped.set()
        if self._pausing is not None and not self._pausing.done():
            self._pausing.set_result(None)

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than until the request is stopped."""
        if not seconds:
            # Without a delay too: a client that leaves must be noticed between two tokens.
            await asyncio.sleep(0)
        elif not self.stopped.is_set():
            loop = asyncio.get_running_loop()
            self._pausing = future = loop.create_future()
            timer = loop.call_later(seconds, _wake, future)
            try:
                await future
            finally:
                timer.cancel()

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """Wait for something unless the request is stopped before; raises `Stopped`."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self.stopped.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Stopped
            return task.result()
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # nobody else asks how it failed, if the request ended in the same moment

    def break_connection(self, *, reset: bool) -> None:
        """End the connection at once, with a TCP reset if asked for; always raises `ConnectionCut`."""
        self.cut = True
        abort(self.request.transport, reset=reset)
        raise ConnectionCut

    def _open(self, status: int, headers: Mapping[str, str]) -> web.StreamResponse:
        self.response = web.StreamResponse(status=status, headers={"Server": "uvicorn", **headers, **self.headers()})
        if self.refusing():
            self.response.force_close()
        return self.response

    def _breaks_at(self, sent: int) -> bool:
        fault = self.fault
        return fault is not None and fault.kind in {"cut_mid_event", "exit", "error_event"} and sent >= fault.after

    async def _stall_at(self, sent: int, *, last: bool = False) -> None:
        fault = self.fault
        if fault is not None and fault.kind == "stall" and (sent <= fault.after if last else sent == fault.after):
            await self.cleared.wait()

    async def _break_stream(self, response: web.StreamResponse, event: bytes, stream: Stream) -> None:
        failure = stream.failure() if self.has_fault("error_event") else None
        if failure is not None:
            await response.write(failure)
            await response.write_eof()
            return
        await response.write(event[: len(event) // 2])
        self._die()

    def _die(self) -> None:
        if self.has_fault("exit"):
            self.cut = True
            self.exit()
        self.break_connection(reset=False)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def abort(transport: asyncio.Transport | None, *, reset: bool) -> None:
    """Close a transport without sending what waits: with FIN, as a killed process does, or with a reset."""
    if transport is None:
        return
    if reset:
        # Zero seconds of lingering make the kernel send RST in place of FIN.
        with suppress(OSError):
            handle = transport.get_extra_info("socket")
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
