"""Checking a decoded body against a table of fields, and reporting what is wrong as real engines do."""

from collections.abc import Callable, Iterator, Mapping
from reprlib import Repr
from typing import TypeAlias

from attrs import evolve, frozen

Check: TypeAlias = Callable[[object], bool]
Location: TypeAlias = tuple[str | int, ...]

_ECHO = Repr()
_ECHO.maxstring = _ECHO.maxother = 2_000
_ECHO.maxdict = _ECHO.maxlist = 50


@frozen
class Problem:
    """One thing that is wrong with a body: its kind, where, what was expected, and what was there."""

    kind: str
    location: Location
    message: str
    value: object = None

    @property
    def path(self) -> str:
        """Where the problem is, as one text with dots."""
        return ".".join(map(str, self.location))

    def show(self, *, dotted: bool = False) -> str:
        """Put the problem into words, with its place as a tuple or as a text with dots."""
        location = self.path if dotted else self.location
        parts = f"'type': {self.kind!r}, 'loc': {location!r}, 'msg': {self.message!r}"
        return f"{{{parts}, 'input': {_ECHO.repr(self.value)}}}"


@frozen
class Kind:
    """What one field may hold: a check, its words, and the table of a nested object or of its items."""

    name: str
    words: str
    check: Check
    nullable: bool = True
    required: bool = False
    nested: "Table | None" = None


@frozen
class Table:
    """The fields of an object; without `open`, any other key is a problem."""

    kinds: Mapping[str, Kind]
    open: bool = False

    def problems(self, value: object, location: Location = ("body",)) -> Iterator[Problem]:
        """Yield every problem of `value`, in the order of the table."""
        if not isinstance(value, dict):
            yield Problem("model_attributes_type", location, "Input should be a valid dictionary", value)
            return
        for name, kind in self.kinds.items():
            if name in value:
                yield from _field_problems(kind, value[name], (*location, name))
            elif kind.required:
                yield Problem("missing", (*location, name), "Field required", value)
        if not self.open:
            for name in value:
                if name not in self.kinds:
                    message = "Extra inputs are not permitted"
                    yield Problem("extra_forbidden", (*location, str(name)), message, value[name])


def _field_problems(kind: Kind, value: object, location: Location) -> Iterator[Problem]:
    if value is None and kind.nullable:
        return
    if not kind.check(value):
        yield Problem(kind.name, location, f"Input should be {kind.words}", value)
    elif kind.nested is not None and isinstance(value, list):
        for position, item in enumerate(value):
            yield from kind.nested.problems(item, (*location, position))
    elif kind.nested is not None and not isinstance(value, str):
        yield from kind.nested.problems(value, location)


def report(problems: list[Problem], *, dotted: bool = False) -> str:
    """Put problems into one text, the way that FastAPI's engines print them."""
    head = "1 validation error" if len(problems) == 1 else f"{len(problems)} validation errors"
    return "\n  ".join([f"{head}:", *(problem.show(dotted=dotted) for problem in problems)])


def is_integer(value: object) -> bool:
    """Whether a value is a whole number, written as an integer or with an empty fraction."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


def is_number(value: object) -> bool:
    """Whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    """Whether a value is a whole number of at least one."""
    return isinstance(value, int | float) and is_integer(value) and value >= 1


def is_share(value: object) -> bool:
    """Whether a value is a number from zero to one."""
    return isinstance(value, int | float) and is_number(value) and 0 <= value <= 1


def is_token_ids(value: object) -> bool:
    """Whether a value is a list of token ids that fit 32 bits."""
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 31 for item in value
    )


def is_strings(value: object) -> bool:
    """Whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_prompt(value: object) -> bool:
    """Whether a value is a prompt: text, token ids, or a list of either."""
    return (
        isinstance(value, str)
        or is_token_ids(value)
        or is_strings(value)
        or (isinstance(value, list) and all(is_token_ids(item) for item in value))
    )


INTEGER = Kind("int_type", "a valid integer", is_integer)
NUMBER = Kind("float_type", "a valid number", is_number)
BOOLEAN = Kind("bool_type", "a valid boolean", lambda value: isinstance(value, bool))
STRING = Kind("string_type", "a valid string", lambda value: isinstance(value, str))
STOP = Kind(
    "string_type",
    "a valid string or list of strings",
    lambda value: isinstance(value, str) or is_strings(value),
)
TOKEN_IDS = Kind("list_type", "a valid list of token ids", is_token_ids)
LIST = Kind("list_type", "a valid list", lambda value: isinstance(value, list))
OBJECT = Kind("dict_type", "a valid dictionary", lambda value: isinstance(value, dict))
PROMPT = Kind("union_type", "a string, a list of token ids, or a list of either", is_prompt)
ANY = Kind("any", "anything", lambda _value: True)
COUNT = Kind("greater_than_equal", "a whole number of at least 1", is_count)
SHARE = Kind("range", "a number from 0 to 1", is_share)


def literal(*values: str) -> Kind:
    """Make a kind that holds one of the given strings."""
    words = " or ".join(repr(value) for value in values)
    return Kind("literal_error", words, lambda value: isinstance(value, str) and value in values)


def optional(kind: Kind, names: str) -> dict[str, Kind]:
    """Make one entry for each of the names, which may be absent or null."""
    return dict.fromkeys(names.split(), kind)


def present(kind: Kind, names: str) -> dict[str, Kind]:
    """Make one entry for each of the names, which may be absent but never null."""
    return optional(evolve(kind, nullable=False), names)


def required(kind: Kind, names: str) -> dict[str, Kind]:
    """Make one entry for each of the names, which must be there and not null."""
    return optional(evolve(kind, nullable=False, required=True), names)


def nested(table: Table, names: str) -> dict[str, Kind]:
    """Make one entry for each of the names, which hold an object of the given table, or null."""
    return optional(evolve(OBJECT, nested=table), names)
