"""The part of the HTTP/1.1 protocol that begins requests, and one request with its answer.

What uvicorn does for any answer, it does here for those that are not the usual ones.
"""

from asyncio import Event
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from plugins.host.outlet import Outlet

_FRAMING: Final = frozenset((b"connection", b"transfer-encoding"))
_BODILESS: Final = (204, 304)


def _locate(url: bytes) -> tuple[str, bytes, bytes]:
    """The path of a request target, in text and as it came, and the query.

    Raises:
        httptools.HttpParserInvalidURLError: it is none.
    """
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


@lru_cache(maxsize=256)
def _form(names: tuple[bytes, ...]) -> tuple[bytes, int] | None:
    """The lines of headers with these names, to be filled with their values, and which one is the length.

    None if the length is not all that they say of the body's frame, or one is no header's name.
    """
    lower = [name.lower() for name in names]
    if lower.count(b"content-length") != 1 or not _FRAMING.isdisjoint(lower) or HEADER_RE.search(b"".join(lower)):
        return None
    lines = b"".join(name.replace(b"%", b"%%") + b": %b\r\n" for name in lower)
    return lines, lower.index(b"content-length")


class Cycle(RequestResponseCycle):
    """One request with its answer, which is written at once if it has a length, and else chunk by chunk."""

    transport: Outlet  # type: ignore[assignment]

    async def send(self, message: Any) -> None:
        """Take a message of the answer."""
        if self.flow.write_paused or self.disconnected or self.response_complete or not self._write(message):
            await super().send(message)

    def _write(self, message: Any) -> bool:
        """Write a message, if it is one of the usual ones."""
        if not self.response_started:
            return message["type"] == "http.response.start" and self._begin(message)
        body = message.get("body")
        if not body or message["type"] != "http.response.body" or self.scope["method"] == "HEAD":
            return False
        if message.get("more_body", False):
            if self.chunked_encoding:
                self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
            return bool(self.chunked_encoding)
        if self.chunked_encoding or len(body) != self.expected_content_length:
            return False
        self.transport.write(body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True

    def _begin(self, message: Any) -> bool:
        """Have the head of an answer go out with its body, whose length it tells."""
        status = message["status"]
        fields = [*self.default_headers, *message.get("headers", ())]
        names, values = zip(*fields, strict=True) if fields else ((), ())
        form = _form(names)
        if form is None or status in _BODILESS or HEADER_VALUE_RE.search(b"".join(values)):
            return False
        lines, place = form
        self.expected_content_length = int(values[place])
        self.response_started = True
        self.waiting_for_100_continue = self.chunked_encoding = False
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self.transport.hold(STATUS_LINE[status] + lines % values + end)
        return True


class CycleProtocol(HttpToolsProtocol):
    """uvicorn's protocol on httptools, with our own cycles, which write to the `outlet`."""

    outlet: Outlet

    def on_headers_complete(self) -> None:
        """Start to answer a request, or have it wait for its turn."""
        parser, scope = self.parser, self.scope
        version = scope["http_version"] = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        path, raw, scope["query_string"] = _locate(self.url)
        scope["path"], scope["raw_path"] = self.root_path + path, self.root_path.encode("ascii") + raw
        before = self.cycle
        self.cycle = cycle = Cycle(
            scope=scope,
            transport=self.outlet,  # type: ignore[arg-type]
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:  # type: ignore[redundant-expr]
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
