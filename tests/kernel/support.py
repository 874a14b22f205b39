"""What tests of the kernel share: plugins on a shelf, a request in memory, a real server, a raw client."""

import asyncio
import importlib
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import uvicorn
from attrs import define, field, frozen

from kernel import CallNext, Endpoint, Exchange, OrderLine, PluginSpec, Reply, Runtime, Standard, Telemetry
from plugins.configuration import Document

Call = Callable[[Exchange, CallNext], Awaitable[Reply]]
Message = MutableMapping[str, Any]
App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]

TEST = Endpoint("test", "/test")

_numbers = count()


def spec_of(name: str, call: Call, **options: Any) -> PluginSpec:
    """The spec of a plugin without configuration that does what `call` does."""

    @frozen
    class Made:
        async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
            return await call(exchange, call_next)

    return PluginSpec(name, Made, **options)


def standard_of(*names: str, endpoints: Iterable[Endpoint] = (TEST,), telemetry: Telemetry | None = None) -> Standard:
    """A distribution whose chain is `names`, outermost first."""
    order = tuple(OrderLine(name, f"{name} stands here") for name in names)
    return Standard(order=order, endpoints=tuple(endpoints), telemetry=telemetry)


@define
class Shelf:
    """Distributions that are found as if pip had installed them in `folder`, which is on the import path."""

    folder: Path

    def install(self, distribution: str, entries: Mapping[str, str], group: str = "kernel.plugins") -> None:
        """Leave in the folder what pip would: a name, a version and entry points."""
        info = self.folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        importlib.invalidate_caches()

    def put(self, *specs: PluginSpec) -> None:
        """Offer specs that a test made, through a module that no file holds."""
        module = ModuleType(f"shelf_module_{next(_numbers)}")
        sys.modules[module.__name__] = module
        for spec in specs:
            setattr(module, spec.name, spec)
        entries = {spec.name: f"{module.__name__}:{spec.name}" for spec in specs}
        self.install(module.__name__, entries)

    def runtime(self, *specs: PluginSpec, text: str = "", **options: Any) -> Runtime:
        """A runtime whose whole standard chain is `specs`, outermost first; not started."""
        self.put(*specs)
        standard = standard_of(*(spec.name for spec in specs), **options)
        return Runtime(standard, lambda: Document.parse(text, "kernel.yaml"))


@define
class Request:
    """One request to an ASGI application in memory, and the answer so far."""

    app: App
    path: str = "/test"
    body: bytes | None = b""
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    root_path: str = ""
    status: int | None = field(default=None, init=False)
    answer_headers: list[tuple[bytes, bytes]] = field(factory=list, init=False)
    chunks: list[bytes] = field(factory=list, init=False)
    ended: bool = field(default=False, init=False)
    inbox: asyncio.Queue[Message] = field(factory=asyncio.Queue, init=False)

    def __attrs_post_init__(self) -> None:
        if self.body is not None:
            self.inbox.put_nowait({"type": "http.request", "body": self.body, "more_body": False})

    async def run(self) -> Self:
        """Send it, and return when the application has."""
        scope = {
            "type": "http",
            "method": self.method,
            "path": self.root_path + self.path,
            "root_path": self.root_path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in self.headers],
        }
        await self.app(scope, self.inbox.get, self._take)
        return self

    def hang_up(self) -> None:
        """Leave."""
        self.inbox.put_nowait({"type": "http.disconnect"})

    @property
    def text(self) -> str:
        """The body of the answer so far."""
        return b"".join(self.chunks).decode()

    def header(self, name: str) -> str | None:
        """A header of the answer."""
        return next((value.decode() for key, value in self.answer_headers if key == name.encode()), None)

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.answer_headers = message["status"], [*message["headers"]]
        else:
            self.chunks.append(message["body"])
            self.ended = not message.get("more_body", False)


@asynccontextmanager
async def serve(app: Any, **options: Any) -> AsyncIterator[int]:
    """Serve an ASGI application with uvicorn on a free port of loopback, which it gives."""
    config = uvicorn.Config(app, log_config=None, access_log=False, **options)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve([listener]))
        try:
            await until(lambda: server.started or running.done())
            yield listener.getsockname()[1]
        except BaseException:
            server.force_exit = True  # what hangs must not hide why the test failed
            raise
        finally:
            server.should_exit = True
            await running


@define
class Client:
    """A raw HTTP/1.1 connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    @asynccontextmanager
    async def connect(cls, port: int, **options: Any) -> AsyncIterator[Self]:
        """Connect; hangs up at the end."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port, **options))
        try:
            yield client
        finally:
            await client.hang_up()

    def post(self, path: str = "/test", body: bytes = b"", *lines: str) -> None:
        """Send a request."""
        head = [f"POST {path} HTTP/1.1", "host: test", f"content-length: {len(body)}", *lines, "", ""]
        self.writer.write("\r\n".join(head).encode() + body)

    async def read_head(self) -> int:
        """Read the status line and headers of an answer; returns the status."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1])

    async def read_sized(self) -> tuple[int, bytes]:
        """Read an answer that has a content-length."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head.split(b" ", 2)[1]), await self.reader.readexactly(size)

    async def hang_up(self) -> None:
        """Close the connection."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


async def until(condition: Callable[[], object]) -> None:
    """Return when `condition` holds; a test that waits for what never comes fails."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def turn(times: int = 10) -> None:
    """Let everything that can go on do so."""
    for _ in range(times):
        await asyncio.sleep(0)
