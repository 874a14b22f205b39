"""Floor D's client: HTTP/1.1 over bare asyncio protocols, parsed by httptools, with connections kept for later."""

import asyncio
from collections import deque
from typing import Final

import httptools

from bench.bodies import PATH

_HEAD: Final = "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: "


class Origin:
    """One worker, and the connections to it that nobody uses now."""

    def __init__(self, url: str) -> None:
        address = url.removeprefix("http://")
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._head = _HEAD.format(path=PATH, host=address).encode()
        self.idle: deque[Connection] = deque()

    async def post(self, body: bytes) -> "Connection":
        """Send a request; returns the connection once the head of the answer is there."""
        if self.idle:
            connection = self.idle.pop()
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(lambda: Connection(self), self._host, self._port)
        await connection.ask(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        return connection


class Connection(asyncio.Protocol):
    """One connection, and the answer that comes in over it: its `status`, its `kind`, and its chunks."""

    _transport: asyncio.Transport

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._started = self._ended = False
        self.status = 0
        self.kind = b""

    async def ask(self, request: bytes) -> None:
        """Send a request, and wait for the head of its answer."""
        self._begin()
        self._transport.write(request)
        while not self._started:
            await self._wait()

    async def read(self) -> bytes:
        """All of the body."""
        while not self._ended:
            await self._wait()
        return b"".join(self._parts)

    async def read_some(self) -> bytes:
        """What of the body has come in; nothing at its end."""
        while not self._parts and not self._ended:
            await self._wait()
        some = b"".join(self._parts)
        self._parts.clear()
        return some

    def release(self) -> None:
        """Keep the connection for later, or close it if its answer has not ended."""
        if self._ended and self._error is None and self._parser.should_keep_alive():
            self._origin.idle.append(self)
        else:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        self._error = exc or ConnectionResetError("the worker closed the connection")
        if self in self._origin.idle:
            self._origin.idle.remove(self)
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Parse what came in."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = error
            self._transport.abort()
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what is passed on."""
        if name.lower() == b"content-type":
            self.kind = value

    def on_headers_complete(self) -> None:
        """The head is there."""
        self.status = self._parser.get_status_code()
        self._started = True

    def on_body(self, body: bytes) -> None:
        """Collect the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """The answer has ended."""
        self._ended = True
