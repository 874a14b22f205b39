"""Takes the addresses of workers out of what they tell of errors in mid-stream."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from plugins.envelopes import hide_addresses

ERROR: Final = b"error"
"""What is in every event that tells of an error, in its name or in its data, in whatever grammar."""

_QUOTED: Final = b'"error"'


def scrub(name: bytes, data: bytes) -> bytes:
    """The data of an event of that name, without addresses in its message if it is an error; any other as it is."""
    if name != ERROR and _QUOTED not in data:
        return data
    try:
        value: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    if not isinstance(value, dict):
        return data
    changed = [_hide(holder) for part in (value, value.get("response")) for holder in _holders(part)]
    return orjson.dumps(value) if any(changed) else data


def _holders(part: Any) -> Iterator[dict[str, Any]]:
    """The objects that may have a message: an event or a response, and its error."""
    if isinstance(part, dict):
        yield part
        if isinstance(part.get("error"), dict):
            yield part["error"]


def _hide(holder: dict[str, Any]) -> bool:
    """Take addresses out of what an object tells; whether there were any."""
    told = {name: holder[name] for name in ("message", "error") if isinstance(holder.get(name), str)}
    plain = {name: hide_addresses(text) for name, text in told.items()}
    holder.update(plain)
    return plain != told
