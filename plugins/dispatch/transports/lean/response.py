"""An answer as it comes in: what has arrived and was not taken yet, and how it ended."""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from plugins.dispatch.client import Fault, MalformedFault, StaleFault, TransportFault
from plugins.dispatch.transports.lean.decoder import Decoder
from plugins.dispatch.transports.lean.head import CHUNKED, UNTIL_CLOSED, Head

HIGH_WATER: Final = 256 * 1024
"""Bytes that wait to be taken; with more, the connection is not read from until all were taken."""


class Carrier(Protocol):
    """What an answer asks of its connection."""

    def expect(self) -> "asyncio.Future[None]":
        """What is done when more has come in, or nothing will."""
        ...

    def hold(self) -> None:
        """Do not read on for now."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...

    def cut_request(self) -> None:
        """Leave out what was not sent yet."""
        ...

    def finish(self, *, keep: bool) -> None:
        """The answer has come in whole; with `keep` the connection can carry another one."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class LeanResponse:
    """See `Response`. Its connection is free when the last byte has come in, which may be before that is taken."""

    __slots__ = ("_carrier", "_decoder", "_failure", "_held", "_keep", "_left", "_parts", "_size", "headers", "status")

    def __init__(self, carrier: Carrier, method: str) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._carrier: Carrier | None = carrier
        self._parts: list[bytes] = []
        self._decoder = Decoder(method, self._parts)
        self._failure: tuple[type[Fault], str] | None = None
        self._left = 0
        self._size = 0
        self._keep = False
        self._held = False

    async def head(self) -> None:
        """Return when the head has come in; raises as `Client.send` does."""
        while not self.status and self._carrier is not None:
            try:
                await self._carrier.expect()
            except asyncio.CancelledError:
                self.close()
                raise
        if not self.status:
            raise self._fault()

    async def chunk(self) -> bytes:
        """See `Response`. What arrived before a fault is given first; cancelled, it closes the connection."""
        parts = self._parts
        while not parts and self._carrier is not None:
            try:
                await self._carrier.expect()
            except asyncio.CancelledError:
                self.close()
                raise
        if parts:
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            self._size = 0
            if self._held and self._carrier is not None:
                self._held = False
                self._carrier.resume()
            return data
        if self._failure is not None:
            raise self._fault()
        return b""

    def close(self) -> None:
        """See `Response`."""
        self.fail(TransportFault, "closed by its reader")
        self._parts.clear()

    def feed(self, data: bytes) -> None:
        """Take in bytes from the connection."""
        try:
            self._take(data)
        except MalformedFault as fault:
            self.fail(MalformedFault, fault.detail)

    def lose(self, error: Exception | None, *, stale: bool) -> None:
        """Hear that nothing more will come, and by what error. `stale`: it may have been so before the request."""
        if self.status and self._left == UNTIL_CLOSED and error is None:
            self._finish(keep=False)
            return
        kind = StaleFault if stale and not self._decoder.received else TransportFault
        self.fail(kind, "closed by the worker" if error is None else f"{type(error).__name__}: {error}")

    def fail(self, kind: type[Fault], detail: str) -> None:
        """End with a fault and close the connection, unless the answer is complete."""
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            self._failure = (kind, detail)
            carrier.abort()

    def _fault(self) -> Fault:
        kind, detail = self._failure or (TransportFault, "closed")
        return kind(detail)

    def _take(self, data: bytes) -> None:
        if not self.status:
            found = self._decoder.read_head(data)
            if found is None:
                return
            head, data = found
            self._open(head)
        left = self._left
        if left == CHUNKED:
            if data and self._decoder.read_chunks(data):
                self._finish(keep=self._decoder.whole)
        elif len(data) >= left >= 0:
            if left:
                self._parts.append(data[:left])
            self._finish(keep=len(data) == left)
        elif data:
            self._parts.append(data)
            if left >= 0:
                self._left = left - len(data)
        self._size += len(data)
        if self._size > HIGH_WATER and self._parts and not self._held and self._carrier is not None:
            self._held = True
            self._carrier.hold()

    def _open(self, head: Head) -> None:
        self.status, self.headers, self._left, self._keep = head.status, head.headers, head.length, head.keep
        if head.status >= 400 and self._carrier is not None:  # RFC 9112, 9.5: the worker does not want the rest
            self._carrier.cut_request()

    def _finish(self, *, keep: bool) -> None:
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.finish(keep=keep and self._keep)
