"""How an upgrade is declined: such a request is parsed again without the wish for it.

The parser takes what follows a wish for an upgrade as another protocol, and so would lose the body of a request
that some clients send with one (`h2c`), for any server may ignore the wish (RFC 9110, 7.8).
"""

from collections.abc import Iterable
from typing import Final

WISH: Final = frozenset((b"upgrade", b"http2-settings"))
"""The headers of a wish for an upgrade, and the tokens of `connection` that go with them."""


def head_without_wish(first_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of a request in which nobody asks for anything else than HTTP/1.1."""
    lines = [first_line]
    for name, value in headers:
        if name == b"connection":
            tokens = (token.strip() for token in value.split(b","))
            value = b", ".join(token for token in tokens if token.lower() not in WISH)  # noqa: PLW2901
        if name not in WISH:
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join((*lines, b"\r\n"))
