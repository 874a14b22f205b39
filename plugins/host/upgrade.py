"""The part of the HTTP/1.1 protocol that declines an upgrade: such a request is parsed again without the wish for it.

The parser takes what follows a wish for an upgrade as another protocol, and so would lose the body of a request
that some clients send with one (`h2c`), for any server may ignore the wish (RFC 9110, 7.8).
"""

import sys

import httptools

from plugins.host.head import HeadProtocol

WISH = frozenset((b"upgrade", b"http2-settings"))
"""The headers of a wish for an upgrade, and the tokens of `connection` that go with them."""


class UpgradeProtocol(HeadProtocol):
    """Answers in HTTP/1.1 whatever else a client would rather speak."""

    _again: bytes | None = None  # what is to be parsed next

    def data_received(self, data: bytes) -> None:
        """Parse what came in, and again what was not for the parser."""
        super().data_received(data)
        while self._again is not None:
            data, self._again = self._again, None
            super().data_received(data)

    def on_headers_complete(self) -> None:
        """Start to answer a request, unless it is one with a wish.

        Raises:
            ValueError: the request is for a tunnel.
        """
        if not self.parser.should_upgrade():
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise ValueError("no tunnels here")

    def on_message_complete(self) -> None:
        """End a request, unless it is one with a wish, which has not begun."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Take out the wish, and have all of the request parsed by a parser that has not heard of it."""
        stopped = sys.exception()
        rest = self._data[stopped.args[0] :] if isinstance(stopped, httptools.HttpParserUpgrade) else b""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = (token.strip() for token in value.split(b","))
                value = b", ".join(token for token in tokens if token.lower() not in WISH)  # noqa: PLW2901
            if name not in WISH:
                lines.append(b"%b: %b" % (name, value))
        self._again = b"\r\n".join((*lines, b"\r\n")) + rest
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
