"""The part of the HTTP/1.1 protocol that bounds how long a connection may be idle."""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS: Final = 60.0
"""How long a connection may take to send a head."""

_TICK: Final = 0.001  # uvloop's clock and timers count milliseconds
NEVER: Final = float("inf")


class IdleProtocol(HttpToolsProtocol):
    """uvicorn's protocol on httptools, without Nagle's algorithm, and with one timer instead of one for each wait.

    It is set anew when it goes off too early.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._due = NEVER  # when the connection has been idle for too long
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection."""
        super().connection_made(transport)
        accepted = transport.get_extra_info("socket")
        if accepted is not None and accepted.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio does this only where the listening socket names its protocol
            with suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._close_at(self.loop.time() + HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        self.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]  # which holds the protocol

    def _close_at(self, due: float) -> None:
        """Close the connection at that time of the loop, unless it is busy then."""
        self._due = due
        if due < self._timer_due:
            self._set_timer(due)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.loop.call_at(due, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_due = None, NEVER
        if self.loop.time() + _TICK < self._due:
            self._close_at(self._due)
        elif not self.transport.is_closing():
            self.transport.close()
