"""One request being answered: the ways to answer it, and the places where a fault breaks the answer."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress

import orjson
from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.faults import FaultRule
from plugins.dispatch.embedded.stub.ledger import Received

DONE = b"data: [DONE]\n\n"


class ConnectionCut(Exception):
    """The stub has broken the connection on purpose."""


class Rejection(Exception):
    """An engine declines a request: a status and a body in the engine's own shape."""

    def __init__(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or {}


@define(eq=False)
class Call:
    """A request with its record, its fault, and what has been sent so far."""

    request: web.BaseRequest
    received: Received
    exit: Callable[[], None]
    refusing: Callable[[], bool]
    fault: FaultRule | None = None
    slow: float = 0.0
    body: dict[str, object] = field(factory=dict)
    response: web.StreamResponse | None = None
    cut: bool = False

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
        if self.has_fault("cut_mid_event") or self.has_fault("exit"):
            await response.write(body[: len(body) // 2])
            self._die()
        await response.write(body)
        await response.write_eof()

    async def send_stream(self, events: AsyncGenerator[bytes, None], error_event: bytes) -> None:
        """Answer with server-sent events and the end marker, or up to where a fault breaks them."""
        response = self._open(200, {"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        writer = await response.prepare(self.request)
        if writer is not None:
            writer.send_headers()
        if self.has_fault("die_after_headers"):
            self.break_connection(reset=True)
        sent = 0
        async with aclosing(events):
            async for event in events:
                if self._breaks_at(sent):
                    await self._break_stream(response, event, error_event)
                    return
                await response.write(event)
                sent += 1
        # A break that was to come after more events than there were comes at the end marker.
        if self.fault is not None and self.fault.kind in {"cut_mid_event", "exit", "error_event"}:
            await self._break_stream(response, DONE, error_event)
            return
        if not self.has_fault("end_without_done"):
            await response.write(DONE)
        await response.write_eof()

    def break_connection(self, *, reset: bool) -> None:
        """End the connection at once, with a TCP reset if asked for; always raises `ConnectionCut`."""
        self.cut = True
        abort(self.request.transport, reset=reset)
        raise ConnectionCut

    def _open(self, status: int, headers: Mapping[str, str]) -> web.StreamResponse:
        self.response = web.StreamResponse(status=status, headers={"Server": "uvicorn", **headers})
        if self.refusing():
            self.response.force_close()
        return self.response

    def _breaks_at(self, sent: int) -> bool:
        fault = self.fault
        return fault is not None and fault.kind in {"cut_mid_event", "exit", "error_event"} and sent >= fault.after

    async def _break_stream(self, response: web.StreamResponse, event: bytes, error_event: bytes) -> None:
        if self.has_fault("error_event"):
            await response.write(error_event)
            await response.write(DONE)
            await response.write_eof()
            return
        await response.write(event[: len(event) // 2])
        self._die()

    def _die(self) -> None:
        if self.has_fault("exit"):
            self.cut = True
            self.exit()
        self.break_connection(reset=False)


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
