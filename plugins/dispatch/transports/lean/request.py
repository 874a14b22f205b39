"""The bytes of a request's head."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from attrs import field, frozen

from plugins.dispatch.client import Call

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_OWN: Final = frozenset(
    ("connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
)
"""Headers about the connection and the body's length, which only the client itself can know."""

_WITH_BODY: Final = frozenset(("PATCH", "POST", "PUT"))
_BAD_VALUE: Final = "a header's value is printable ASCII"


FORMS: Final = 32
"""Sets of header names of requests to one URL whose heads are remembered, but for the values."""


@frozen(eq=False)
class Target:
    """Where a URL points: host and port, and the first two lines of a request for it."""

    origin: tuple[str, int]
    lines: str
    forms: dict[tuple[object, ...], str] = field(factory=dict)


def locate(method: str, url: str) -> Target:
    """The target of a URL.

    Raises:
        ValueError: it is no `http://` URL, or it or the method would change the lines around it.
    """
    if not _TOKEN.fullmatch(method):
        raise ValueError(f"bad method {method!r:.40}")
    if not (url.isascii() and url.isprintable()) or " " in url or "#" in url:
        raise ValueError("a URL is plain ASCII without spaces and fragment")
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or "@" in parts.netloc:
        raise ValueError("expected http://host:port without credentials")
    port = 80 if parts.port is None else parts.port
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    authority = host if port == 80 else f"{host}:{port}"
    return Target((parts.hostname, port), f"{method} {path} HTTP/1.1\r\nhost: {authority}\r\n")


def write_head(call: Call, target: Target, *, close: bool) -> bytes:
    """The head of a request to `target`; with `close` it is the last one on its connection.

    Raises:
        ValueError: a header is none, or its value is not printable ASCII, or only the client may set it.
    """
    headers, size = call.headers, len(call.body)
    sized = size > 0 or call.method in _WITH_BODY
    form = target.forms.get((close, sized, *headers)) or _add_form(target, headers, close=close, sized=sized)
    values = (*headers.values(),)
    try:
        head = (form % (*values, size) if sized else form % values).encode("ascii")
    except UnicodeEncodeError:
        raise ValueError(_BAD_VALUE) from None
    if not "".join(values).isprintable():
        raise ValueError(_BAD_VALUE)
    return head


def _add_form(target: Target, names: Iterable[str], *, close: bool, sized: bool) -> str:
    """A head with headers of these names, in the form that takes their values, and the length, by `%`."""
    for name in names:
        if not _TOKEN.fullmatch(name) or name.lower() in _OWN:
            raise ValueError(f"the header {name!r:.40} cannot be sent")
    lines = [target.lines.replace("%", "%%"), *(f"{name.replace('%', '%%')}: %s\r\n" for name in names)]
    if sized:
        lines.append("content-length: %d\r\n")
    if close:
        lines.append("connection: close\r\n")
    if len(target.forms) >= FORMS:
        target.forms.clear()
    form = target.forms[close, sized, *names] = "".join((*lines, "\r\n"))
    return form
