"""Which headers pass between clients and workers, in both directions."""

import random
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from attrs import define

from kernel import Exchange, Secret
from plugins.slots import TRACE

REQUEST_ID: Final = "x-request-id"
"""By which a worker is told a request apart, the same on all legs."""

_WANTED: Final = ("accept", "traceparent", "tracestate", "anthropic-version", "anthropic-beta")
_PASSED_ON: Final = tuple((name.encode(), name) for name in _WANTED)
_KEPT: Final = re.compile(r"retry-after|(?:x-|anthropic-)?ratelimit-[a-z0-9-]{1,64}")
_VALUE_LIMIT: Final = 256


def is_plain(value: str) -> bool:
    """Whether a header can have this value: printable ASCII, so that no encoding changes it."""
    return value.isascii() and value.isprintable()


def check_key(_instance: object, _attribute: object, value: Secret) -> None:
    """An attrs validator: a key that can be sent in a header."""
    if not is_plain(value.reveal()):
        raise ValueError("a key is printable ASCII, without line ends")


def headers_for_worker(exchange: Exchange) -> dict[str, str]:
    """What every leg of a request sends. Of the client's own headers only those that mean something to a worker.

    The body is JSON whatever the client called it: it was parsed as such, and strict workers look. An id that the
    client chose ends here: it may come twice, and workers know their requests and what they hold by it.
    """
    sent = exchange.sent
    headers = {
        "content-type": "application/json",
        "accept-encoding": "identity",
        REQUEST_ID: f"{random.getrandbits(128):032x}" if b"x-request-id" in sent else exchange.id,
    }
    fields = exchange.scope["headers"]
    once = len(sent) == len(fields)
    for wanted, name in _PASSED_ON:
        if wanted in sent:
            value = (sent[wanted] if once else _first(fields, wanted)).decode("latin-1")
            if value.isascii() and value.isprintable():
                headers[name] = value
    trace = exchange.get(TRACE)
    if trace is not None:
        headers.pop("tracestate", None)
        headers.update(trace)
    return headers


def _first(fields: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    """Of headers that stand more than once, the first that can be passed on."""
    values = [value for name, value in fields if name == wanted]
    return next((value for value in values if is_plain(value.decode("latin-1"))), values[0])


def headers_for_client(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Of a worker's headers those about limits: when to come back, and what is left until then."""
    names = "\n".join(headers).lower()
    if "ratelimit" not in names and "retry-after" not in names:
        return []
    return [
        (kept, value)
        for name, value in headers.items()
        if (kept := _kept_name(name)) and len(value) <= _VALUE_LIMIT and is_plain(value)
    ]


@define(eq=False)
class Traits:
    """What the headers of an answer say of its body, and what of them is for the client.

    `kind` and `encoding` are in lower case, without parameters. A connection that breaks too soon cannot be taken for
    the end of a body that is `bounded`. `told` is the content type if it can be passed on, else it is empty.
    """

    kind: str
    encoding: str
    bounded: bool
    told: bytes
    limits: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Traits":
        """Read them."""
        told = headers.get("content-type", "")
        encoding = headers.get("content-encoding")
        limits = headers_for_client(headers)
        return cls(
            told.partition(";")[0].strip().lower(),
            "identity" if encoding is None else encoding.strip().lower(),
            "content-length" in headers or "transfer-encoding" in headers,
            told.encode() if is_plain(told) else b"",
            tuple([(name.encode(), value.encode()) for name, value in limits]) if limits else (),
        )

    def reply_headers(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """The headers of a reply: the worker's content type, or else `kind`, and those about limits."""
        return [(b"content-type", self.told or kind), *self.limits]


@lru_cache(maxsize=1024)
def _kept_name(name: str) -> str | None:
    """The name under which a header is passed to clients; workers send few different ones, and always the same."""
    lower = name.lower()
    return lower if _KEPT.fullmatch(lower) else None
