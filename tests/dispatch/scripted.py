"""A worker that plays a script, byte by byte."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from attrs import define, field

Script = Callable[["Seen"], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\n"


async def answer_ok(seen: "Seen") -> None:
    """Answer well."""
    await seen.answer(b'{"ok":true}')


async def answer_ill(seen: "Seen") -> None:
    """Answer that nothing can be served."""
    await seen.answer(b"", "503 Down")


async def hang(seen: "Seen") -> None:
    """Say nothing for as long as the client stays."""
    await seen.until_client_left()


async def die(seen: "Seen") -> None:
    """Break the connection without a byte."""
    await seen.hang_up()


@define(eq=False)
class Seen:
    """One request as it came over the wire, and the connection to answer on."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def header(self) -> Mapping[str, str]:
        """The headers by name."""
        return dict(self.headers)

    async def send(self, *parts: bytes) -> None:
        """Write each part by itself."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def answer(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        """Answer with a whole body, JSON unless a header says otherwise."""
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
        if not any(line.startswith("content-type") for line in headers):
            lines.append("content-type: application/json")
        await self.send("\r\n".join([*lines, "\r\n"]).encode("latin-1") + body)

    async def begin_stream(self, *chunks: bytes) -> None:
        """Open a stream of events and send chunks of it."""
        await self.send(OK + b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
        await self.send(*map(framed, chunks))

    async def end_stream(self) -> None:
        """End the body of a stream."""
        await self.send(b"0\r\n\r\n")

    async def hang_up(self) -> None:
        """Close the connection as it is."""
        self.writer.close()

    async def until_client_left(self) -> None:
        """Return when the other side has closed the connection."""
        while await self.reader.read(1024):
            pass


def keep_port(port: int = 0) -> socket.socket:
    """A socket that holds a port on which connections are refused, for as long as it is open."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", port))
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return kept


def framed(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@define(eq=False)
class ScriptedWorker:
    """Answers a request for `/health` as `probe` does, and every other one as `script` does."""

    script: Script
    probe: Script = answer_ok
    seen: list[Seen] = field(factory=list)
    probes: int = 0
    connections: int = 0
    open: int = 0
    _server: asyncio.Server | None = None
    _port: int = 0
    _kept: socket.socket | None = None
    _serving: dict[asyncio.StreamWriter, asyncio.Task[None]] = field(factory=dict)
    _changed: asyncio.Condition = field(factory=asyncio.Condition)

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen, on the port of an earlier start if there was one."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Stop listening; connections stay, and so does the port, which nobody else may get meanwhile."""
        assert self._server is not None
        self._server.close()
        if self._kept is None:
            self._kept = keep_port(self._port)

    async def stop(self) -> None:
        """Stop listening and break every connection."""
        self.refuse()
        for writer, task in tuple(self._serving.items()):
            writer.transport.abort()
            task.cancel()
        await self.until(lambda: self.open == 0)

    def close(self) -> None:
        """Let go of the port."""
        if self._kept is not None:
            self._kept.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about this worker holds."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(holds)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        number = self.connections
        task = asyncio.current_task()
        assert task is not None
        self._serving[writer] = task
        try:
            while not writer.is_closing():
                await self._serve(reader, writer, number)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()
            del self._serving[writer]
            self.open -= 1
            await self._notify()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.strip().split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (text.partition(":") for text in lines)]
        body = await reader.readexactly(int(dict(headers).get("content-length", "0")))
        seen = Seen(line, headers, body, number, reader, writer)
        if "/health " in line:
            self.probes += 1
            await self._notify()
            await self.probe(seen)
        else:
            self.seen.append(seen)
            await self._notify()
            await self.script(seen)
        await self._notify()


@asynccontextmanager
async def scripted(script: Script, probe: Script = answer_ok) -> AsyncIterator[ScriptedWorker]:
    """A scripted worker that listens."""
    worker = ScriptedWorker(script, probe)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()
        worker.close()
