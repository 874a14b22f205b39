"""The part of the HTTP/1.1 protocol that makes requests of what comes in; the parser knows no limit for a head."""

import asyncio
from abc import abstractmethod
from collections import deque
from typing import Any, Final

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from plugins.host.application import run
from plugins.host.cycle import Cycle
from plugins.host.idle import HEAD_SECONDS, NEVER, IdleProtocol
from plugins.host.target import SHORT, locate_any, locate_short
from plugins.host.upgrade import head_without_wish

HEAD_BYTES: Final = 64 * 1024
"""How large a request line and its headers may be together."""


class HeadTooLarge(Exception):
    """A request's head is larger than `HEAD_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"the request line and headers are larger than {HEAD_BYTES} bytes")


class HeadProtocol(IdleProtocol):
    """Answers in HTTP/1.1 whatever else a client would rather speak, request after request."""

    cycle: Cycle  # type: ignore[assignment]  # the latest that came in
    pipeline: deque[Cycle]  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.done.set_result(None)
        self._running: Cycle | None = None  # which is being answered
        self._deaf = False  # nothing that still comes in is parsed
        self._received = 0  # bytes before the part that is being parsed
        self._end = 0  # bytes until its end
        self._head_open = False
        self._head_start = 0  # bytes before the part in which the head began
        self._head_base = 0  # bytes until the end of that part
        self._head_since = 0.0
        self._wish = False  # the request is one for an upgrade
        self._scope: dict[str, Any] = {}  # of any request, but for what each has of its own

    def connection_made(self, transport: Any) -> None:
        """Take over a connection."""
        super().connection_made(transport)
        self._scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            **dict.fromkeys(("http_version", "method", "path", "raw_path", "query_string", "headers", "state")),
        }

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection; the application hears of it."""
        self.pipeline.clear()
        for cycle in (self._running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.tell()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came in, and again what was not for the parser; see that a head which goes on has its limits."""
        while data and not self._deaf:
            part, data = data, b""
            self._end = self._received + len(part)
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserUpgrade as stopped:
                data = self._decline() + part[stopped.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("the request is not valid HTTP")
            start, self._received = self._received, self._end
            if self._head_open and not self._deaf:
                self._bound_head(start)

    def _decline(self) -> bytes:
        """Have the head parsed again, by a parser that has not heard of a wish."""
        parser = self.parser
        line = b"%b %b HTTP/%b" % (parser.get_method(), self.url, parser.get_http_version().encode())
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return head_without_wish(line, self.headers)

    def _bound_head(self, part_start: int) -> None:
        if self._head_start == part_start:
            self._head_base = self._received
            self._head_since = self.loop.time()
        elif self._received - self._head_base > HEAD_BYTES:
            self.send_400_response(str(HeadTooLarge()))
            return
        if self.is_idle():
            self._close_at(self._head_since + HEAD_SECONDS)

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._head_open = True
        self._head_start = self._received
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what stands behind the body is none of it, and is dropped (RFC 9110, 6.5.1)."""
        if self._head_open:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Start to answer a request, or have it wait for its turn, unless it is one with a wish.

        Raises:
            HeadTooLarge: which stops the parser, and so leads to `send_400_response`.
            ValueError: the request is for a tunnel.
        """
        self._head_open = False
        self._due = NEVER
        parser, url = self.parser, self.url
        self._wish = parser.should_upgrade()
        if self._wish:
            if parser.get_method() == b"CONNECT":
                raise ValueError("no tunnels here")
            return
        if self._end - self._head_start > HEAD_BYTES:
            size = len(url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEAD_BYTES:
                raise HeadTooLarge
        scope = self._scope.copy()
        scope["headers"] = self.headers
        scope["http_version"] = version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        locate = locate_short if len(url) <= SHORT else locate_any
        scope["path"], scope["raw_path"], scope["query_string"] = locate(self.root_path, url)
        scope["state"] = self.app_state.copy()
        before = self.cycle
        self.cycle = cycle = Cycle(self, scope, keep_alive=version != "1.0" and parser.should_keep_alive())
        if before is None or before.response_complete:  # type: ignore[redundant-expr]
            self._start(cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.append(cycle)

    def on_body(self, body: bytes) -> None:
        """Take a part of a request's body."""
        cycle = self.cycle
        if cycle.response_complete:
            self._close_at(self.loop.time() + self.timeout_keep_alive)
            return
        if cycle.body:
            cycle.take(body)
        else:
            cycle.body = body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.news = True
        if cycle.event is not None:
            cycle.event.set()

    def on_message_complete(self) -> None:
        """End a request, unless it is one with a wish, which has not begun."""
        if self._wish:
            return
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body, cycle.news = False, True
            if cycle.event is not None:
                cycle.event.set()

    def _start(self, cycle: Cycle) -> None:
        self._running = cycle
        cycle.task = task = self.loop.create_task(run(self.app, cycle))
        self.tasks.add(task)

    @abstractmethod
    def close(self) -> None:
        """Close after an answer."""

    def is_idle(self) -> bool:
        """Whether every request that came in has its answer."""
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def has_half_a_head(self) -> bool:
        """Whether a request has begun whose headers are not complete."""
        return self._head_open
