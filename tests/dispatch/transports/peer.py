"""A worker below HTTP: it accepts connections, and a script sends bytes on each of them as it likes."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from attrs import define, field

Script = Callable[["Peer"], Awaitable[None]]

_LINGER_OFF = struct.pack("ii", 1, 0)


@define(eq=False)
class Peer:
    """One accepted connection; `number` counts from one."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> bytes:
        """The next request, head and body, byte for byte."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head + (await self.reader.readexactly(int(length[0].split(b":")[1])) if length else b"")

    async def send(self, *parts: bytes) -> None:
        """Send each part by itself, and let the other side read it before the next one is sent."""
        for part in parts:
            if self.writer.is_closing():  # uvloop does not take what is written to a closed connection
                raise ConnectionResetError
            self.writer.write(part)
            await self.writer.drain()
            for _ in range(3):
                await asyncio.sleep(0)

    def end(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        self.writer.write_eof()

    def hang_up(self) -> None:
        """Close the connection."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection in the rude way."""
        sock: socket.socket | None = self.writer.get_extra_info("socket")
        if sock is not None:  # else it is broken already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Return when the other side has closed the connection."""
        while await self.reader.read(65536):
            pass


@define(eq=False)
class Worker:
    """Runs `script` for each connection, and closes it when the script is over."""

    script: Script
    connections: int = 0
    open: int = 0
    _server: asyncio.Server | None = None
    _address: tuple[str, int] = ("127.0.0.1", 0)
    _tasks: set[asyncio.Task[None]] = field(factory=set)
    _changed: asyncio.Condition = field(factory=asyncio.Condition)

    @property
    def url(self) -> str:
        """The address."""
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def port(self) -> int:
        """The port."""
        return self._address[1]

    async def start(self, host: str, context: ssl.SSLContext | None) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, host, 0, ssl=context)
        self._address = self._server.sockets[0].getsockname()[:2]

    async def stop(self) -> None:
        """Stop listening, and break every connection."""
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about this worker holds."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(holds)

    async def until_left(self) -> None:
        """Wait until no connection is open."""
        await self.until(lambda: self.open == 0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            await self._notify()
            await self.script(Peer(self.connections, reader, writer))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            self.open -= 1
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def worker(
    script: Script, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> AsyncIterator[Worker]:
    """A worker that listens, with a context over TLS."""
    server = Worker(script)
    await server.start(host, context)
    try:
        yield server
    finally:
        await server.stop()


def says(*parts: bytes, keep: bool = True) -> Script:
    """A script that answers every request with these parts; without `keep` it closes after the first one."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(*parts)
            if not keep:
                return

    return script
