"""Reading a request that is to be said over the chat API, and refusing what cannot be said there."""

from collections.abc import Iterable, Iterator
from typing import Any

from plugins.slots import InvalidRequest

Data = dict[str, Any]
"""An object of a JSON body."""


def refusal(place: str, reason: str, code: str = "invalid_value") -> InvalidRequest:
    """Why a request is refused for what stands at `place`, a dotted path as in Anthropic's own messages.

    Anthropic's error has no field for the place, so the message names it.
    """
    return InvalidRequest(400, f"{place}: {reason}", code, param=place)


def objects(value: Any, place: str) -> Iterator[tuple[Data, str]]:
    """Each object of an array, with its own place.

    Raises:
        InvalidRequest: 400, it is no array of objects.
    """
    if value.__class__ is not list:
        raise refusal(place, "expected an array", "invalid_type")
    for index, item in enumerate(value):
        if item.__class__ is not dict:
            raise refusal(f"{place}.{index}", "expected an object", "invalid_type")
        yield item, f"{place}.{index}"


def text_in(block: Data, field: str, place: str, *, empty: bool = True) -> str:
    """The text in a field.

    Raises:
        InvalidRequest: 400, there is none, or it is empty and may not be.
    """
    value = block.get(field)
    if value.__class__ is not str:
        raise refusal(f"{place}.{field}", "expected a string", "invalid_type")
    if not value and not empty:
        raise refusal(f"{place}.{field}", "must not be empty")
    return str(value)


def one_of(names: Iterable[str]) -> str:
    """Names as they stand in a sentence."""
    return ", ".join(sorted(names))


def object_in(data: Data, field: str) -> Data:
    """The object in a field of a request, an empty one where there is none.

    Raises:
        InvalidRequest: 400, it is something else.
    """
    value = data.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise refusal(field, "expected an object", "invalid_type")
    return value


def joined(parts: list[Data]) -> str | list[Data]:
    """Chat content: plain text where that is all, as a client may send the same turn either way."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts
