"""Decoding a request's body from JSON or msgpack."""

from collections.abc import Mapping
from secrets import token_bytes

import orjson
import ormsgpack

MSGPACK_HEADER = "X-TRTLLM-Msgpack"

_END = token_bytes(16)
_MARK = ormsgpack.packb(_END)


def wire_format(headers: Mapping[str, str]) -> str:
    """Name the wire format that a request's headers announce: `msgpack` or `json`."""
    return "msgpack" if headers.get(MSGPACK_HEADER) == "1" else "json"


def decode(raw: bytes, wire: str) -> object:
    """Decode a body; an empty one is an empty object.

    Raises `ValueError` for bytes that are not of the announced format.
    """
    if not raw:
        return {}
    return _unpack(raw) if wire == "msgpack" else orjson.loads(raw)


def is_json_type(content_type: str | None) -> bool:
    """Whether a content type names JSON."""
    media = (content_type or "").split(";")[0].strip().lower()
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))


def _unpack(raw: bytes) -> object:
    # ormsgpack ignores what comes after the first value. As the first item of a pair, the value must be
    # followed by the mark and nothing else.
    pair = ormsgpack.unpackb(b"\x92" + raw + _MARK, option=ormsgpack.OPT_NON_STR_KEYS)
    if pair[1] != _END:
        raise ValueError("there is more than one value")
    return pair[0]
