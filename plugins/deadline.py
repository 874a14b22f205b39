"""Ends requests that take longer than their client or the operator waits."""

import asyncio
import re
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any, Final

from attrs import Attribute, define, field, frozen

from kernel import Exchange, PluginSpec, Rejection, Reply, Slot, StreamReply
from plugins.hooks import Guard, Hooks, close_guard, open_guard
from plugins.slots import DEADLINE, STREAM
from plugins.sse import KEEP_ALIVES

_ASKED: Final = b"x-request-timeout"
_GRPC: Final = b"grpc-timeout"
_ASKING: Final = frozenset((_ASKED, _GRPC))
_SECONDS: Final = re.compile(rb"\d{1,9}(?:\.\d{1,9})?")
_GRPC_TIMEOUT: Final = re.compile(rb"(\d{1,8})([HMSmun])")
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def _positive(_instance: object, attribute: "Attribute[Any]", value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{attribute.name} must be above zero, and finite, got {value!r}")


@frozen
class Deadline(Hooks):
    """Stop a request that is not complete in time: 504, or within its stream the error event of its API.

    `seconds` are counted from the request's arrival. A client may ask for less, and never gets more, with
    `x-request-timeout`, in seconds, or `grpc-timeout`, a number and one of the units H M S m u n; the smallest counts,
    and one that is malformed or zero is answered with 400. A stream may take `first_byte_seconds` to its first byte,
    counted from its arrival, and then pause for `silence_seconds`; signs of life that the kernel itself sends are no
    bytes of it. null means no limit.
    """

    seconds: float | None = field(default=None, validator=_positive)
    first_byte_seconds: float | None = field(default=None, validator=_positive)
    silence_seconds: float | None = field(default=None, validator=_positive)

    def on_request(self, exchange: Exchange) -> None:
        """Set the limits that hold.

        Raises:
            Rejection: 504, a limit was reached; 400, the client's cannot be read.
        """
        seconds = self.seconds
        if not _ASKING.isdisjoint(exchange.sent):
            asked = min(_read(name, value) for name, value in exchange.scope["headers"] if name in _ASKING)
            seconds = asked if seconds is None else min(seconds, asked)
        paced = (self.first_byte_seconds or self.silence_seconds) is not None and exchange.get(STREAM)
        if seconds is None and not paced:
            return
        if seconds is not None:
            _set(exchange, seconds)
        if paced:
            exchange[_PACE] = _Pace(exchange, self.first_byte_seconds, self.silence_seconds)
        open_guard(exchange, _GUARD)

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Let a stream keep its pace."""
        close_guard(exchange, _GUARD)
        pace = exchange.get(_PACE)
        if pace is not None:
            exchange[_PACE] = None  # it has the exchange, which would have it
            if isinstance(reply, StreamReply):
                pace.watch(reply)
        return reply

    def on_error(self, exchange: Exchange, error: BaseException) -> None:
        """Say which limit was reached, if that is what ended the work."""
        exchange[_PACE] = None
        close_guard(exchange, _GUARD, error)


def _read(name: bytes, value: bytes) -> float:
    """The seconds that a client asks for."""
    if name == _GRPC:
        found = _GRPC_TIMEOUT.fullmatch(value)
        asked = int(found[1]) * _UNITS[found[2]] if found else 0.0
    else:
        asked = float(value) if _SECONDS.fullmatch(value) else 0.0
    if not asked:
        wanted = "a number and one of H M S m u n" if name == _GRPC else "a number of seconds"
        raise Rejection(400, f"the header {name.decode()} must be {wanted}, above zero", "invalid_header")
    return asked


def _set(exchange: Exchange, seconds: float) -> None:
    """Stop the request `seconds` after its arrival; at once if that is past."""
    deadline = exchange[DEADLINE] = exchange.arrived + seconds
    left = deadline - monotonic()
    if left <= 0:
        raise _exceeded(seconds)
    timer = exchange.loop.call_later(left, lambda: exchange.interrupt(_exceeded(seconds)))
    exchange.resources.push(timer.cancel)


def _exceeded(seconds: float) -> Rejection:
    return Rejection(504, f"the answer was not complete within {seconds:g} s", "deadline_exceeded")


@define(eq=False)
class _Pace:
    """The source of a stream as it was, with an eye on how long it is waited for.

    While the client takes what there is, nothing is: a slow reader makes no silence.
    """

    exchange: Exchange
    first: float | None
    silence: float | None
    _source: AsyncIterator[bytes] = field(init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _since: float | None = field(default=None, init=False)
    _begun: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.exchange.resources.push(self._stop)
        if self.first is not None:
            left = self.exchange.arrived + self.first - monotonic()
            self._timer = self.exchange.loop.call_later(max(left, 0.0), self._miss_first)

    def watch(self, reply: StreamReply) -> None:
        """Stand before the source of the reply."""
        self._source = aiter(reply.source)
        reply.source = self

    def __aiter__(self) -> "_Pace":
        return self

    async def __anext__(self) -> bytes:
        if self._since is None:
            self._since = self.exchange.loop.time()
        chunk = await anext(self._source)
        if chunk and chunk not in KEEP_ALIVES:
            self._since = None
            if not self._begun:
                self._begin()
        return chunk

    def _begin(self) -> None:
        self._begun = True
        self._stop()
        if self.silence is not None:
            self._timer = self.exchange.loop.call_later(self.silence, self._look, self.silence)

    def _look(self, silence: float) -> None:
        left = silence if self._since is None else self._since + silence - self.exchange.loop.time()
        if left > 0:
            self._timer = self.exchange.loop.call_later(left, self._look, silence)
        else:
            message = f"the stream said nothing for {silence:g} s"
            self.exchange.interrupt(Rejection(504, message, "silence_timeout"))

    def _miss_first(self) -> None:
        message = f"the stream said nothing within {self.first:g} s of the request"
        self.exchange.interrupt(Rejection(504, message, "first_byte_timeout"))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


_GUARD: Final = Slot[Guard | None]("deadline_guard")
_PACE: Final = Slot[_Pace | None]("pace")

PLUGIN = PluginSpec("deadline", Deadline, fills=(DEADLINE,))
