"""The kinds of values that fields of a request have, and the check of a whole request against them."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from plugins.slots import InvalidRequest

ID_LIMIT: Final = 1024

Check = Callable[[Any], str | None]
"""Says what was expected when a value is wrong, else None."""

Rule = tuple[frozenset[type], Check]
"""The types all of whose values are right, and the check of others."""

_NULL: Final = frozenset((type(None),))
"""Null is as good as nothing, where nothing is allowed."""


def rule(check: Check, *types: type) -> Rule:
    """Values of exactly these types are right, of others those that pass the check."""
    return frozenset(types), check


def kind(*types: type, expected: str) -> Rule:
    """Values of exactly these types."""
    return _NULL.union(types), lambda _: expected


def integer(low: int = -(2**63)) -> Rule:
    """Integers that are not below `low`."""
    least = "" if low < 0 else f" of at least {low}"
    expected = f"an integer{least} that fits into 64 bits"
    return _NULL, lambda value: None if value.__class__ is int and low <= value < 2**63 else expected


def array_of(item: type, expected: str) -> Rule:
    """Arrays, empty ones too, whose items are all of exactly this type."""
    return _NULL, lambda value: None if value.__class__ is list and all_are(item, value) else expected


def all_are(item: type, items: list[Any]) -> bool:
    """Whether every item is of exactly this type; prompts may have millions."""
    return not set(map(type, items)) - {item}


def _conversation(value: Any) -> str | None:
    if value.__class__ is dict and value.get("conversation_id").__class__ in (str, int):
        text = str(value["conversation_id"]).strip()
        if text and len(text) <= ID_LIMIT:
            return None
    return f"an object whose conversation_id is not blank and has at most {ID_LIMIT} characters"


CONVERSATION: Final[Rule] = (_NULL, _conversation)
"""Of `conversation_params`."""

INTEGER: Final = integer()
NATURAL: Final = integer(0)
NUMBER: Final = kind(int, float, expected="a number")
BOOLEAN: Final = kind(bool, expected="a boolean")
STRING: Final = kind(str, expected="a string")
OBJECT: Final = kind(dict, expected="an object")
STRINGS: Final = array_of(str, "an array of strings")
OBJECTS: Final = array_of(dict, "an array of objects")
CHOICE: Final = kind(str, dict, expected="a string or an object")


def check_fields(data: Mapping[str, Any], rules: Mapping[str, Rule], *required: str) -> None:
    """Check the model's name, that the required fields are there, and every field that has a rule.

    Raises:
        InvalidRequest: 400, naming the field.
    """
    check_model(data)
    for name in required:
        if data.get(name) is None:
            refuse(name, f"missing required field {name!r}", "missing_required_field")
    for name, value in data.items():
        if name in rules:
            types, check = rules[name]
            if value.__class__ not in types and (expected := check(value)) is not None:
                refuse(name, f"{name!r} must be {expected}", "invalid_type")


def check_model(data: Mapping[str, Any]) -> None:
    """Check the model's name.

    Raises:
        InvalidRequest: 400, it is missing or not a name.
    """
    model = data.get("model")
    if model is None:
        refuse("model", "missing required field 'model'", "missing_required_field")
    if model.__class__ is not str or not model:
        refuse("model", "'model' must be a non-empty string", "invalid_type")


def refuse(param: str, message: str, code: str) -> NoReturn:
    """Raise the `InvalidRequest` that names a field."""
    raise InvalidRequest(400, message, code, param=param)
