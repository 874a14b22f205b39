"""The part of the HTTP/1.1 protocol that bounds a request's head, in bytes and in time; the parser knows no limit."""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

from plugins.host.cycle import CycleProtocol

HEAD_BYTES: Final = 64 * 1024
"""How large a request line and its headers may be together."""

HEAD_SECONDS: Final = 60.0
"""How long a connection may take to send a head."""


class HeadTooLarge(Exception):
    """A request's head is larger than `HEAD_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"the request line and headers are larger than {HEAD_BYTES} bytes")


class HeadProtocol(CycleProtocol):
    """uvicorn's protocol on httptools, with limits for the head and without Nagle's algorithm."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._data = b""  # the part that is being parsed
        self._received = 0  # bytes before that part
        self._part = 0  # bytes in it
        self._head_open = False
        self._head_start = 0  # bytes before the part in which the head began
        self._head_part = 0  # bytes in that part
        self._head_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection."""
        super().connection_made(transport)
        accepted = transport.get_extra_info("socket")
        if accepted is not None and accepted.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio does this only where the listening socket names its protocol
            with suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came in, and see that a head which goes on stays within its limits."""
        self._data = data
        self._part = len(data)
        super().data_received(data)
        self._received += self._part
        if not self._head_open:
            return
        if self._received - self._head_start - self._head_part > HEAD_BYTES:
            self.send_400_response(str(HeadTooLarge()))
        elif self.is_idle():
            self._unset_keepalive_if_required()
            expiry = self._head_since + HEAD_SECONDS
            self.timeout_keep_alive_task = self.loop.call_at(expiry, self.timeout_keep_alive_handler)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._head_open = True
        self._head_start = self._received
        self._head_part = self._part
        self._head_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start to answer a request.

        Raises:
            HeadTooLarge: which stops the parser, and so leads to `send_400_response`.
        """
        self._head_open = False
        if self._received + self._part - self._head_start > HEAD_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEAD_BYTES:
                raise HeadTooLarge
        super().on_headers_complete()

    def is_idle(self) -> bool:
        """Whether every request that came in has its answer."""
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def has_half_a_head(self) -> bool:
        """Whether a request has begun whose headers are not complete."""
        return self._head_open
