"""What the head of an answer says: its status, its headers, and where its body ends."""

from collections.abc import ItemsView, Iterator, Mapping, Sequence
from typing import Final, TypeVar, overload

from attrs import define

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.headers import Traits

T = TypeVar("T")

HEAD_END: Final = b"\r\n\r\n"

FIELD_LIMIT: Final = 256
"""Headers of one answer."""

CHUNKED: Final = -1
"""The length of a body that says itself where it ends."""

UNTIL_CLOSED: Final = -2
"""The length of a body that ends with its connection."""

_LENGTH_DIGITS: Final = 18
_BODILESS: Final = (204, 304)


class Headers(Mapping[str, str]):
    """Headers whose names are found in any case; the values of a name that stands twice are joined by a comma."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def resized(self, length: int) -> "Headers":
        """The same with another length of the body."""
        return Headers(self._values | {"content-length": str(length)})

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, default: T, /) -> str | T: ...
    def get(self, name: str, default: object = None, /) -> object:
        """The value of a header, or `default`."""
        return self._values.get(name.lower(), default)

    def items(self) -> ItemsView[str, str]:
        """Names in lower case, and values."""
        return self._values.items()


@define(eq=False)
class Head:
    """The head of an answer. `length` is that of the body, `CHUNKED` or `UNTIL_CLOSED`.

    `keep` says that the worker lets the connection be used again.
    """

    status: int
    headers: Headers
    length: int
    keep: bool
    traits: Traits


def read_headers(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """The values of headers by name in lower case.

    Raises:
        MalformedFault: there are too many of them.
    """
    if len(fields) > FIELD_LIMIT:
        raise MalformedFault(f"an answer with more than {FIELD_LIMIT} headers")
    values: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").rstrip(" \t")
        values[name] = f"{values[name]}, {value}" if name in values else value
    return values


def frame(method: str, status: int, version: str, values: dict[str, str]) -> Head:
    """The head of an answer to a request with `method`; the rules are those of RFC 9112, section 6.3, and stricter.

    Raises:
        MalformedFault: it can be understood in more than one way, or not at all.
    """
    coding, length = values.get("transfer-encoding"), values.get("content-length")
    if coding is not None and (coding.lower() != "chunked" or length is not None or version != "1.1"):
        raise MalformedFault(f"the transfer encoding {coding!r:.60} in HTTP/{version}, content length {length!r:.30}")
    if length is not None and not (length.isascii() and length.isdigit() and len(length) <= _LENGTH_DIGITS):
        raise MalformedFault(f"the content length {length!r:.60}")
    if method == "HEAD" or status in _BODILESS:
        size = 0
    elif coding is not None:
        size = CHUNKED
    else:
        size = UNTIL_CLOSED if length is None else int(length)
    keep = _is_kept(version, values.get("connection")) and not (status == 204 and (coding or length))
    return Head(status, Headers(values), size, keep, Traits.of(values))


def _is_kept(version: str, connection: str | None) -> bool:
    if connection is None:
        return version == "1.1"
    options = [option.strip() for option in connection.lower().split(",")]
    return "close" not in options and (version == "1.1" or "keep-alive" in options)
