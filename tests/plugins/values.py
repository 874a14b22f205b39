"""One value of each kind that JSON knows, and what a schema says of them."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from plugins.slots import InvalidRequest

SECRET = "secret"
VALUES: dict[str, Any] = {
    "string": SECRET,
    "empty": "",
    "integer": 3,
    "zero": 0,
    "negative": -1,
    "largest": 2**63 - 1,
    "too large": 2**63,
    "huge": orjson.loads("123456789012345678901234567890"),
    "float": 0.5,
    "whole float": 3.0,
    "boolean": True,
    "array": [],
    "strings": [SECRET, ""],
    "integers": [1, 2],
    "nested integers": [[1], [2, 3]],
    "mixed": [SECRET, 1],
    "booleans": [True],
    "nulls": [None],
    "object": {SECRET: 1},
    "objects": [{SECRET: 1}],
}

Check = Callable[[Mapping[str, Any]], None]


def refusal(check: Check, data: dict[str, Any]) -> InvalidRequest | None:
    """Why the data is refused, None if it is not."""
    try:
        check(data)
    except InvalidRequest as error:
        return error
    return None
