"""One connection to a worker: it writes requests, hands what comes back to the answer, and limits the wait for it."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from plugins.dispatch.client import Call, TimeoutFault, TransportFault
from plugins.dispatch.transports.lean.repeats import Repeats
from plugins.dispatch.transports.lean.response import LeanResponse

STALE_SECONDS: Final = 1.0
"""A connection that its worker had closed breaks within a round trip; later, a worker died of its work."""

PIECE: Final = 256 * 1024
"""Bytes of a body that are handed over at once; the next piece of a longer one follows when they have gone out."""

_TICK: Final = 0.001  # uvloop's clock and timers count milliseconds
_FOREVER: Final = float("inf")


class Home(Protocol):
    """Where a connection belongs."""

    repeats: Repeats
    """What its worker's heads have in common."""

    def keep(self, connection: "Connection") -> None:
        """It is idle, and can be used again."""
        ...

    def drop(self, connection: "Connection") -> None:
        """It is being closed."""
        ...

    def forget(self, connection: "Connection") -> None:
        """It is closed."""
        ...


class Connection(asyncio.Protocol):
    """Carries one answer at a time.

    Limits cost no timer for each wait: the connection has one, which is set anew when it goes off too early.
    """

    __slots__ = (
        "_began", "_due", "_full", "_home", "_last", "_loop", "_read", "_response", "_timer", "_timer_due",
        "_transport", "_unsent", "_until", "_used", "_waiter", "is_closing",
    )  # fmt: skip

    is_closing: Callable[[], bool]  # the transport's own
    _transport: asyncio.Transport
    _began: float
    _until: float
    _read: float | None
    _last: bool

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self._home = home
        self._loop = loop
        self._response: LeanResponse | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = self._due = _FOREVER
        self._unsent: memoryview | None = None
        self._full = self._used = False

    def begin(self, call: Call, head: bytes, now: float, until: float, *, last: bool) -> LeanResponse:
        """Write a request whose answer must have ended at `until`, in the loop's time; `last`: no other follows."""
        self._began, self._until, self._read, self._last = now, until, call.limits.read, last
        if until < self._timer_due:
            self._set_timer(until)
        self._response = response = LeanResponse(self, call.method, self._home.repeats)
        body = call.body
        self._transport.write(head + body[:PIECE])
        if len(body) > PIECE:
            self._unsent = memoryview(body)[PIECE:]
            self._send_more()
        return response

    def expect(self) -> "asyncio.Future[None]":
        """See `Carrier`."""
        if self._read is not None:
            self._due = due = self._loop.time() + self._read
            if due < self._timer_due:
                self._set_timer(due)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def hold(self) -> None:
        """See `Carrier`."""
        if not self.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """See `Carrier`."""
        if not self.is_closing():
            self._transport.resume_reading()

    def cut_request(self) -> None:
        """See `Carrier`."""
        if self._unsent is not None:
            self._unsent = self._unsent[:0]

    def finish(self, *, keep: bool) -> None:
        """See `Carrier`."""
        self._response = None
        unsent = self._unsent is not None or self._full or self._transport.get_write_buffer_size()
        if keep and not self._last and not unsent:
            self._used = True
            self._home.keep(self)
        else:
            self.abort()

    def abort(self) -> None:
        """See `Carrier`."""
        self._response = None
        self._home.drop(self)
        self._transport.abort()
        self._wake()

    def close(self) -> None:
        """Close at once; an answer that has not ended fails."""
        if self._response is None:
            self.abort()
        else:
            self._response.fail(TransportFault, "the client was closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hear from the loop that the connection is there."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_closing = transport.is_closing

    def data_received(self, data: bytes) -> None:
        """Hear from the loop what has come in."""
        response = self._response
        if response is None:  # nobody asked: whatever it is, it must not become the next answer
            self.abort()
            return
        response.feed(data)
        if self._waiter is None:
            response.pile_up(len(data))
        else:
            self._wake()

    def eof_received(self) -> None:
        """Hear from the loop that nothing more comes in; then there is no use in sending either."""
        self._lose(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Hear from the loop that the connection is gone."""
        self._lose(error)
        if self._timer is not None:
            self._timer.cancel()
        self._home.forget(self)

    def pause_writing(self) -> None:
        """Hear from the loop that the worker does not read as fast as is written."""
        self._full = True

    def resume_writing(self) -> None:
        """Hear from the loop that it does now."""
        self._full = False
        if self._unsent is not None:
            if self._read is not None:  # something moved, so that the time until the next read begins anew
                self._due = self._loop.time() + self._read
            self._send_more()

    def _send_more(self) -> None:
        while self._unsent and not self._full and not self.is_closing():
            piece, self._unsent = self._unsent[:PIECE], self._unsent[PIECE:] or None
            self._transport.write(piece)

    def _lose(self, error: Exception | None) -> None:
        if self._response is None:
            self.abort()
        else:
            soon = self._loop.time() - self._began < STALE_SECONDS
            self._response.lose(error, stale=self._used and soon)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_due = None, _FOREVER
        if self._response is None:
            return
        due = self._until if self._waiter is None or self._read is None else min(self._due, self._until)
        if self._loop.time() + _TICK >= due:
            self._response.fail(TimeoutFault, "not ended in time" if due == self._until else "silent for too long")
        elif due < _FOREVER:
            self._set_timer(due)
