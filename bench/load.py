"""The load generator: a number of connections that ask again as soon as they are answered, and check every answer."""

import asyncio
from time import perf_counter
from typing import Final

import httptools
from attrs import define, field

from bench.bodies import PATH

SHOWN_BYTES: Final = 200


class BenchError(Exception):
    """What was measured did not do what it had to."""


@define(eq=False)
class Load:
    """Sends `body` over connections to one gateway; each answer must be `answer`, byte for byte.

    `run` gives the seconds that each answer took: to its last byte, or with `first_bytes` to its first ones.
    """

    port: int
    body: bytes
    answer: bytes
    first_bytes: bool = False
    request: bytes = field(init=False)
    _clients: list["Client"] = field(init=False, factory=list)
    _left: int = field(init=False, default=0)
    _asking: int = field(init=False, default=0)
    _taken: list[float] = field(init=False, factory=list)
    _done: "asyncio.Future[None] | None" = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        fields = f"host: 127.0.0.1:{self.port}\r\nuser-agent: bench\r\naccept: */*\r\ncontent-type: application/json"
        head = f"POST {PATH} HTTP/1.1\r\n{fields}\r\ncontent-length: {len(self.body)}\r\n\r\n"
        self.request = head.encode() + self.body

    async def connect(self, count: int) -> None:
        """Open `count` connections."""
        loop = asyncio.get_running_loop()
        for _ in range(count):
            _, client = await loop.create_connection(lambda: Client(self), "127.0.0.1", self.port)
            self._clients.append(client)

    async def run(self, count: int, timeout_seconds: float) -> list[float]:
        """Ask `count` times over all connections; returns the seconds of each answer.

        Raises:
            BenchError: an answer is not the expected one, a connection broke, or it takes too long.
        """
        self._left, self._taken = count, []
        self._done = done = asyncio.get_running_loop().create_future()
        for client in self._clients[:count]:
            self._left -= 1
            self._asking += 1
            client.ask()
        try:
            async with asyncio.timeout(timeout_seconds):
                await done
        except TimeoutError:
            raise BenchError(f"{self._asking} requests were not answered after {timeout_seconds:g} s") from None
        return self._taken

    def close(self) -> None:
        """Close every connection."""
        self._done = None
        for client in self._clients:
            client.close()
        self._clients = []

    def take(self, client: "Client", status: int, body: bytes, seconds: float) -> None:
        """Take an answer, and have the connection ask again if anything is left to ask."""
        if status != 200 or body != self.answer:
            self.fail(f"the answer is not the worker's: status {status}, {len(body)} bytes, {body[:SHOWN_BYTES]!r}")
            return
        self._taken.append(seconds)
        if self._left:
            self._left -= 1
            client.ask()
            return
        self._asking -= 1
        if not self._asking and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def fail(self, reason: str) -> None:
        """End the run."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(BenchError(reason))


class Client(asyncio.Protocol):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self, load: Load) -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._asked = 0.0
        self._first = 0.0

    def ask(self) -> None:
        """Send the request."""
        self._parts = []
        self._asked = perf_counter()
        self._transport.write(self._load.request)

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection that is lost during a run ends it."""
        self._load.fail(f"the gateway closed a connection: {exc or 'end of file'}")

    def data_received(self, data: bytes) -> None:
        """Parse what came in."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._load.fail(f"the answer is not HTTP: {error}")

    def on_body(self, body: bytes) -> None:
        """Collect the body."""
        if not self._parts:
            self._first = perf_counter()
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Hand the answer over."""
        ended = self._first if self._load.first_bytes else perf_counter()
        self._load.take(self, self._parser.get_status_code(), b"".join(self._parts), ended - self._asked)
