"""An answer as it comes in: what has arrived and was not taken yet, and how it ended."""

import asyncio
from collections.abc import Mapping
from typing import Final

from plugins.dispatch.client import Fault, MalformedFault, StaleFault, TransportFault
from plugins.dispatch.headers import Traits
from plugins.dispatch.transports.lean.carrier import Carrier
from plugins.dispatch.transports.lean.decoder import Decoder
from plugins.dispatch.transports.lean.head import CHUNKED, UNTIL_CLOSED, Head
from plugins.dispatch.transports.lean.repeats import Repeats

HIGH_WATER: Final = 256 * 1024
"""Bytes that wait to be taken; with more, the connection is not read from until all were taken."""


class LeanResponse:
    """See `Response`. Its connection is free when the last byte has come in, which may be before that is taken."""

    __slots__ = (
        "_decoder", "_failure", "_head", "_held", "_left", "_length", "_method", "_parts", "_repeats", "_size",
        "carrier", "status", "traits",
    )  # fmt: skip

    carrier: Carrier | None
    """None once nothing more will come."""

    status: int
    """0 until the head has come in."""

    traits: Traits
    _head: Head
    _length: int

    def __init__(self, carrier: Carrier, method: str, repeats: Repeats) -> None:
        self.status = 0
        self.carrier = carrier
        self._method = method
        self._repeats = repeats
        self._parts: list[bytes] = []
        self._decoder: Decoder | None = None
        self._failure: tuple[type[Fault], str] | None = None
        self._left = 0
        self._size = 0
        self._held = False

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Response`."""
        head, length = self._head, self._length
        return head.headers if length == head.length else head.headers.resized(length)

    async def chunk(self) -> bytes:
        """See `Response`. What arrived before a fault is given first; cancelled, it closes the connection."""
        parts = self._parts
        while not parts:
            carrier = self.carrier
            if carrier is None:
                if self._failure is not None:
                    raise self.fault()
                return b""
            try:
                await carrier.expect()
            except asyncio.CancelledError:
                self.close()
                raise
        data = parts.pop()
        if parts:
            parts.append(data)
            data = b"".join(parts)
            parts.clear()
        self._size = 0
        if self._held and self.carrier is not None:
            self._held = False
            self.carrier.resume()
        return data

    def rest(self) -> bytes | None:
        """See `Response`."""
        if self.carrier is not None or self._failure is not None:
            return None
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def close(self) -> None:
        """See `Response`."""
        if self.carrier is not None:
            self.fail(TransportFault, "closed by its reader")
        if self._parts:
            self._parts.clear()

    def feed(self, data: bytes) -> None:
        """Take in bytes from the connection."""
        try:
            body = data if self.status else self._read_head(data)
            if body is None:
                return
            decoder = self._decoder
            if decoder is None:
                self._read_plain(body)
            elif body and decoder.read_chunks(body):
                self._finish(keep=decoder.whole)
        except MalformedFault as fault:
            self.fail(MalformedFault, fault.detail)

    def pile_up(self, size: int) -> None:
        """Hear that so many of the bytes came in while nobody waited for any."""
        self._size += size
        if self._size > HIGH_WATER and self._parts and not self._held and self.carrier is not None:
            self._held = True
            self.carrier.hold()

    def lose(self, error: Exception | None, *, stale: bool) -> None:
        """Hear that nothing more will come, and by what error. `stale`: it may have been so before the request."""
        if self.status and self._left == UNTIL_CLOSED and error is None:
            self._finish(keep=False)
            return
        unheard = not self.status and self._decoder is None
        kind = StaleFault if stale and unheard else TransportFault
        self.fail(kind, "closed by the worker" if error is None else f"{type(error).__name__}: {error}")

    def fail(self, kind: type[Fault], detail: str) -> None:
        """End with a fault and close the connection, unless the answer is complete."""
        carrier, self.carrier = self.carrier, None
        if carrier is not None:
            self._failure = (kind, detail)
            carrier.abort()

    def fault(self) -> Fault:
        """Why nothing more will come."""
        kind, detail = self._failure or (TransportFault, "closed")
        return kind(detail)

    def _read_head(self, data: bytes) -> bytes | None:
        """Take in bytes of the head; returns what came behind it, None while it is not complete."""
        known = self._repeats.recall(data) if self._decoder is None and self._method != "HEAD" else None
        if known is not None:
            head, length, start = known
            rest = data[start:]
            decoder = Decoder.of_chunks(self._parts) if length == CHUNKED else None
        else:
            self._decoder = decoder = self._decoder or Decoder(self._method, self._parts)
            found = decoder.read_head(data)
            if found is None:
                return None
            head, rest = found
            length = head.length
            if self._method != "HEAD" and decoder.received == len(data) - len(rest):
                self._repeats.remember(data[: decoder.received], head)
        self._head, self._length, self._left = head, length, length
        self._decoder = decoder if length == CHUNKED else None
        self.status, self.traits = head.status, head.traits
        if head.status >= 400 and self.carrier is not None:  # RFC 9112, 9.5: the worker does not want the rest
            self.carrier.cut_request()
        return rest

    def _read_plain(self, data: bytes) -> None:
        """Take in bytes of a body without a frame."""
        left, size = self._left, len(data)
        if size >= left >= 0:
            if left:
                self._parts.append(data[:left])
            self._finish(keep=size == left)
        elif data:
            self._parts.append(data)
            if left >= 0:
                self._left = left - size

    def _finish(self, *, keep: bool) -> None:
        carrier, self.carrier = self.carrier, None
        if carrier is not None:
            carrier.finish(keep=keep and self._head.keep)
