"""The listening socket and the connections behind it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from attrs import define, field

from plugins.dispatch.embedded.stub.call import abort

_LARGEST_BODY = 1 << 28
_LONGEST_HEADER = 1 << 17
_BACKLOG = 1_024

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connections(web.Server):
    """aiohttp's low-level server, which also knows its open connections and who uses them."""

    def __init__(self, answer: Answer, keep_alive: float, notify: Callable[[], None]) -> None:
        super().__init__(
            answer,
            request_factory=self._make_large_request,
            handler_cancellation=True,
            keepalive_timeout=keep_alive,
            access_log=None,
            auto_decompress=False,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            lingering_time=0,
        )
        self._notify = notify
        self.clients: set[RequestHandler] = set()
        self.controls: set[RequestHandler] = set()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection from its first moment."""
        super().connection_made(handler, transport)
        self.clients.add(handler)
        self._notify()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Stop counting a connection."""
        super().connection_lost(handler, exc)
        self.clients.discard(handler)
        self.controls.discard(handler)
        self._notify()

    def mark_control(self, handler: RequestHandler) -> None:
        """Take a connection out of the count: it belongs to whoever controls the stub."""
        self.controls.add(handler)
        self.clients.discard(handler)
        self._notify()

    def _make_large_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=_LARGEST_BODY)


@define(eq=False)
class Listener:
    """One address that can be opened, closed and opened again without losing its port."""

    host: str
    port: int
    connections: Connections
    _holder: socket.socket | None = field(default=None, init=False)
    _socket: socket.socket | None = field(default=None, init=False)
    _server: asyncio.Server | None = field(default=None, init=False)
    _reopening: asyncio.TimerHandle | None = field(default=None, init=False)
    _tasks: set["asyncio.Task[None]"] = field(factory=set, init=False)

    @property
    def listens(self) -> bool:
        """Whether new connections are accepted."""
        return self._socket is not None

    @property
    def url(self) -> str:
        """The address in the form of a URL without a path."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def reserve(self) -> None:
        """Take the port; a second socket that never listens keeps it while the stub is down."""
        self._holder = self._bind()
        self.port = self._holder.getsockname()[1]

    async def open(self) -> None:
        """Accept connections."""
        listening = self._listen()
        if listening is not None:
            await self._serve(listening)

    def reopen(self) -> None:
        """Accept connections, from where nothing can be awaited."""
        listening = self._listen()
        if listening is not None:
            task = asyncio.ensure_future(self._serve(listening))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Accept no more connections; those that are open stay."""
        self._stop_timer()
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        self._server = self._socket = None

    def refuse(self, seconds: float, busy: set[RequestHandler]) -> None:
        """Close, end idle connections of clients, and open again after some seconds unless they are 0."""
        self.close()
        for handler in self.connections.clients - busy:
            abort(handler.transport, reset=False)
        if seconds:
            self._reopening = asyncio.get_running_loop().call_later(seconds, self.reopen)

    def abort_all(self) -> None:
        """Break every connection at once."""
        for handler in self.connections.clients | self.connections.controls:
            abort(handler.transport, reset=False)

    def abandon(self) -> None:
        """Give back a port that was never served on."""
        if self._holder is not None:
            self._holder.close()

    async def release(self) -> None:
        """Close, break what is open, wait for its handlers, and give the port back."""
        self.close()
        self.abort_all()
        await self.connections.shutdown(1.0)
        if self._holder is not None:
            self._holder.close()

    def _listen(self) -> socket.socket | None:
        """Let the system take connections from now on, unless it does already."""
        self._stop_timer()
        if self._socket is not None:
            return None
        bound = self._bind()
        bound.listen(_BACKLOG)
        self._socket = bound
        return bound

    async def _serve(self, listening: socket.socket) -> None:
        if listening is not self._socket:
            return  # closed before its turn came
        loop = asyncio.get_running_loop()
        # Nothing waits in here until the server is known, so that it can be closed from then on.
        self._server = await loop.create_server(self.connections, sock=listening, start_serving=False)
        await self._server.start_serving()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((self.host, self.port))
        except OSError:
            bound.close()
            raise
        return bound

    def _stop_timer(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
