"""One request with its answer."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from plugins.host.answer import make_head

_JOINED: Final = 64 * 1024
"""Bytes of a body up to which it is copied behind its head; copying more costs as much as another packet."""


def _expects_word(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a client sends its body only when it is told to go on."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


class Connection(Protocol):
    """What a request came in on."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    flow: FlowControl
    server_state: ServerState
    done: asyncio.Future[None]
    """What need not be waited for."""

    tasks: "set[asyncio.Task[None]]"

    def close(self) -> None:
        """Close after an answer."""
        ...

    def on_response_complete(self) -> None:
        """The answer is out."""
        ...


class Cycle:
    """Gives the application its request as it comes in, and writes the answer: in chunks unless it has a length.

    The head is held back until its first bytes come, or the event loop turns: both are one packet then.
    """

    __slots__ = (
        "_bodiless", "_chunked", "_flow", "_head", "_left", "_transport",
        "body", "connection", "disconnected", "event", "keep_alive", "more_body", "news", "response_complete",
        "response_started", "scope", "task",
    )  # fmt: skip

    def __init__(self, connection: Connection, scope: dict[str, Any], *, keep_alive: bool) -> None:
        self.connection = connection
        self._transport = connection.transport
        self._flow = connection.flow
        self.scope = scope
        self.keep_alive = keep_alive
        self.task: asyncio.Task[None] | None = None
        self.disconnected = False
        self.body: bytes | bytearray = b""  # the part that the application has not taken yet
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self.news = False  # there is something to receive
        self.event: asyncio.Event | None = None  # while or since someone had to wait for that
        self._head = b""  # of the answer, which is held back
        self._left = 0  # bytes of the body that the head has promised
        self._chunked = False
        self._bodiless = False

    def take(self, body: bytes) -> None:
        """Have a part of the body received, together with what there is already."""
        if not isinstance(self.body, bytearray):
            self.body = bytearray(self.body)
        self.body += body

    def tell(self) -> None:
        """Have the application hear what there is to receive."""
        self.news = True
        if self.event is not None:
            self.event.set()

    async def receive(self) -> dict[str, Any]:
        """The next part of the request, or that the client is gone or has its answer."""
        if not self.disconnected and not self.response_complete:
            if self._flow.read_paused:
                self._flow.resume_reading()
            if not self.news:
                await self._wait()
            self.news = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    async def _wait(self) -> None:
        if self.event is None:
            self.event = asyncio.Event()
            if self.more_body and not self.response_started and _expects_word(self.scope["headers"]):
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.event.clear()
        await self.event.wait()

    def send(self, message: Any) -> Awaitable[None]:
        """Take a message of the answer; there is nothing to wait for unless the client takes too little."""
        if self._flow.write_paused or self.disconnected:
            return self._send_later(message)
        if not self.response_started:
            self._begin(message)
            return self.connection.done
        if message["type"] != "http.response.body" or self.response_complete:
            raise RuntimeError(f"unexpected ASGI message {message['type']!r}")
        body = message.get("body", b"")
        ends = not message.get("more_body", False)
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = chunk + b"0\r\n\r\n" if ends else chunk
        elif self._bodiless:
            body = b""
        else:
            left = self._left - len(body)
            if left < 0:
                raise RuntimeError("Response content longer than Content-Length")
            self._left = left
        if self._head:
            self._write_first(body)
        elif body:
            self._transport.write(body)
        if ends:
            self._finish()
        return self.connection.done

    async def _send_later(self, message: Any) -> None:
        if not self.disconnected:
            await self._flow.drain()
        if not self.disconnected:
            await self.send(message)

    def _begin(self, message: Any) -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError(f"unexpected ASGI message {message['type']!r}")
        self.response_started = True
        self._bodiless = bodiless = self.scope["method"] == "HEAD"
        common, headers = self.connection.server_state.default_headers, message.get("headers", ())
        self._head, length, chunked, closes = make_head(
            message["status"], common, headers, closes=not self.keep_alive, bodiless=bodiless
        )
        self.keep_alive = not closes
        self._left = 0 if bodiless else length
        if chunked is not False:  # a body whose length is told is about to come
            self._chunked = not bodiless and chunked is True
            self.connection.loop.call_soon(self.flush)

    def _write_first(self, body: bytes) -> None:
        head, self._head = self._head, b""
        if len(body) <= _JOINED:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def _finish(self) -> None:
        if self._left:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = self.news = True
        if self.event is not None:
            self.event.set()
        if not self.keep_alive:
            self.connection.close()
        self.connection.on_response_complete()

    def flush(self) -> None:
        """Write the head if it is still held back."""
        if self._head:
            head, self._head = self._head, b""
            if not self._transport.is_closing():
                self._transport.write(head)
