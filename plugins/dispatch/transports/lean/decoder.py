"""The bytes of one answer: its head is found and parsed, its chunks are taken out of their frames."""

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.transports.lean.head import HEAD_END, Head, frame, read_headers

HEAD_LIMIT: Final = 80 * 1024
"""TensorRT-LLM workers put a request's metrics into headers of up to this size; interim answers count in."""

SILENCE_LIMIT: Final = 64 * 1024
"""Bytes of chunk sizes, extensions and trailers that may come without a byte of the body."""

_BODY_END: Final = b"0\r\n\r\n"
_VERSIONS: Final = ("1.1", "1.0")


class _Events:
    """What the parser tells."""

    __slots__ = ("complete", "ended", "fields", "on_body")

    def __init__(self, parts: list[bytes]) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.complete = False
        self.ended = False
        self.on_body = parts.append

    def on_message_begin(self) -> None:
        if self.ended:
            raise MalformedFault("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True

    def on_message_complete(self) -> None:
        self.ended = True


_OF_CHUNKS: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Decoder:
    """Reads one answer to a request with `method`, and puts the contents of its chunks into `parts`.

    The parser is a new one for each answer, so that nothing of one can get into the next.
    """

    __slots__ = ("_events", "_last", "_method", "_parser", "_parts", "_silence", "received", "whole")

    def __init__(self, method: str, parts: list[bytes]) -> None:
        self._method = method
        self._parts = parts
        self._events = _Events(parts)
        self._parser = HttpResponseParser(self._events)
        self._last = b""
        self._silence = 0
        self.received = 0
        self.whole = False

    @classmethod
    def of_chunks(cls, parts: list[bytes]) -> "Decoder":
        """One for an answer whose head is known."""
        decoder = cls("POST", parts)
        decoder._feed(_OF_CHUNKS)
        return decoder

    def read_head(self, data: bytes) -> tuple[Head, bytes] | None:
        """Take in bytes of the head; when it is complete, it and what came behind it.

        Raises:
            MalformedFault: it is no head of HTTP/1, or one that is too large.
        """
        while data:
            if not self._last and data[0] != ord("H"):  # the parser takes empty lines and other protocols, too
                raise MalformedFault(f"no answer of HTTP: {data[:20]!r}")
            window = self._last + data
            end = window.find(HEAD_END)
            size = len(data) if end < 0 else end + len(HEAD_END) - len(self._last)
            self.received += size
            if self.received > HEAD_LIMIT:
                raise MalformedFault(f"a head of more than {HEAD_LIMIT} bytes")
            self._feed(data[:size])
            if self._events.complete is (end < 0):
                raise MalformedFault("a head with an unclear end")
            if end < 0:
                self._last = window[-len(HEAD_END) + 1 :]
                return None
            data = data[size:]
            head = self._close_head()
            if head is not None:
                return head, data
        return None

    def read_chunks(self, data: bytes) -> bool:
        """Take in bytes of a chunked body. True when it has ended; `whole` if nothing came behind it.

        Raises:
            MalformedFault: they are no chunks.
        """
        clean = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._events.ended:
                raise _malformed(error) from error
            clean = False
        size = len(data)
        self._last = data[-5:] if size > 4 else (self._last + data)[-5:]
        if self._events.ended:
            # the parser skips empty lines between answers, and does not say where trailers end
            self.whole = clean and self._last == _BODY_END
            return True
        self._silence = 0 if self._parts else self._silence + size
        if self._silence > SILENCE_LIMIT:
            raise MalformedFault(f"{self._silence} bytes of chunks without any content")
        return False

    def _close_head(self) -> Head | None:
        """The head that was parsed; None if it is that of an interim answer, behind which the real one comes."""
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        if version not in _VERSIONS or status < 100:
            raise MalformedFault(f"status {status} of HTTP/{version}")
        self._last = b""
        if status >= 200:
            return frame(self._method, status, version, read_headers(self._events.fields))
        self._events = _Events(self._parts)
        self._parser = HttpResponseParser(self._events)
        return None

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise _malformed(error) from error


def _malformed(error: Exception) -> MalformedFault:
    return MalformedFault(f"{type(error).__name__}: {error}")
