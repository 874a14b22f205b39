"""A worker's side of KV-cache events over ZeroMQ: real sockets on loopback, with faults on command."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import ormsgpack
import zmq
import zmq.asyncio
from attrs import define, field


@define(eq=False)
class Publisher:
    """Sends numbered messages, and gives those that it kept to whoever asks."""

    topic: bytes = b""
    rank: int = 0
    number: int = 0
    kept: list[tuple[int, bytes]] = field(factory=list)
    asked: list[int] = field(factory=list)
    subscribed: asyncio.Event = field(factory=asyncio.Event)
    time: float = 1000.0
    _context: zmq.asyncio.Context = field(factory=zmq.asyncio.Context)
    _live: Any = None
    _old: Any = None
    _tasks: list[asyncio.Task[None]] = field(factory=list)

    @property
    def live(self) -> str:
        """The address of live messages."""
        return str(self._live.getsockopt_string(zmq.LAST_ENDPOINT))

    @property
    def old(self) -> str:
        """The address of old messages."""
        return str(self._old.getsockopt_string(zmq.LAST_ENDPOINT))

    async def open(self, *, live: str = "tcp://127.0.0.1:*", old: str = "tcp://127.0.0.1:*", connect: str = "") -> None:
        """Bind both sockets, or connect the live one."""
        self._live, self._old = self._context.socket(zmq.XPUB), self._context.socket(zmq.ROUTER)
        if connect:
            self._live.connect(connect)
        else:
            await _bind(self._live, live)
        await _bind(self._old, old)
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._serve())]

    async def close(self) -> None:
        """Close both."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._live.close(0)
        self._old.close(0)

    def end(self) -> None:
        """Be done with everything."""
        self._context.destroy(linger=0)

    async def send(self, *events: Any, lose: bool = False) -> None:
        """Send a message, or have it get lost on the way."""
        self.time += 1
        payload = ormsgpack.packb([self.time, list(events), self.rank])
        number, self.number = self.number, self.number + 1
        self.kept.append((number, payload))
        if not lose:
            await self.raw(number.to_bytes(8), payload)

    async def raw(self, *frames: bytes) -> None:
        """Send frames behind the topic."""
        await self._live.send_multipart([self.topic, *frames])

    async def _watch(self) -> None:
        while True:
            if (await self._live.recv())[:1] == b"\x01":
                self.subscribed.set()

    async def _serve(self) -> None:
        while True:
            client, _, start = await self._old.recv_multipart()
            self.asked.append(int.from_bytes(start))
            for number, payload in self.kept:
                if number >= int.from_bytes(start):
                    await self._old.send_multipart([client, b"", number.to_bytes(8), payload])
            await self._old.send_multipart([client, b"", (-1).to_bytes(8, signed=True), b""])


async def _bind(socket: Any, address: str) -> None:
    """Bind, once the socket that had the address before is closed for good, which ZeroMQ does in its own time."""
    async with asyncio.timeout(10):
        while True:
            try:
                socket.bind(address)
            except zmq.ZMQError:
                await asyncio.sleep(0)
            else:
                return


@asynccontextmanager
async def publishing(topic: bytes = b"", *, connect: str = "", rank: int = 0) -> AsyncIterator[Publisher]:
    """A publisher whose sockets are open."""
    publisher = Publisher(topic, rank)
    await publisher.open(connect=connect)
    try:
        yield publisher
    finally:
        await publisher.close()
        publisher.end()
