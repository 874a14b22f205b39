"""Configuration classes for tests: one with a field of every kind that is supported, and odd ones."""

from collections.abc import Mapping
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attrs import field, frozen, validators

from kernel import DiscoveryError, Extends, Secret
from plugins.configuration import Document, structure

if TYPE_CHECKING:
    from collections import OrderedDict


class Color(Enum):
    """Values of two types."""

    RED = "red"
    ONE = 1


class Name(StrEnum):
    """Values that are strings themselves."""

    SHORT = "short"


@frozen
class Pool:
    """A class inside a class, with a required key."""

    engine: str
    size: int = field(default=1, validator=validators.ge(1))
    timeout: float = 1.0


@frozen
class Deep:
    """A class inside itself."""

    name: str
    children: tuple["Deep", ...] = ()


def check_even(_instance: object, _attribute: object, value: int) -> None:
    """A validator that raises what validators should not."""
    if value % 2:
        raise KeyError("odd")


@frozen
class Everything:
    """A configuration class with each kind of field that is supported."""

    allow: bool = False
    count: int = 0
    ratio: float = 0.5
    name: str = "x"
    maybe: str | None = None
    either: int | str = 0
    mode: Literal["fast", "slow", 3] = "fast"
    color: Color = Color.RED
    label: Name = Name.SHORT
    path: Path = Path()
    words: tuple[str, ...] = ()
    numbers: list[int] = field(factory=list)
    tags: frozenset[str] = frozenset()
    limits: Mapping[str, float] = field(factory=dict)
    pools: tuple[Pool, ...] = ()
    pool: Pool | None = None
    by_name: dict[str, Pool] = field(factory=dict)
    deep: Deep | None = None
    raw: object = None
    anything: Any = None
    secret: Secret | None = None
    secrets: tuple[Secret, ...] = ()
    _private: int = 0
    low: int = field(default=0, validator=validators.in_([0, 1]))
    code: str = field(default="a", validator=validators.matches_re("[a-z]"))
    even: int = field(default=0, validator=check_even)
    parsed: int = field(default=0, converter=int)
    ports: tuple[int, ...] = field(default=(), validator=validators.deep_iterable(validators.ge(1)))
    pair: tuple[int, str] = (0, "")
    limit: int = field(default=9)
    state: list[int] = field(init=False, factory=list)

    @limit.validator
    def _above_count(self, _attribute: object, value: int) -> None:
        if value < self.count:
            raise ValueError("limit is below count")

    def __attrs_post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("name must not be bad")
        if self.name == "worse":
            raise ZeroDivisionError("at the end")


@frozen
class Required:
    """Nothing but required keys."""

    model: str
    region: str


@frozen
class Nothing:
    """Nothing but run-time state, of a type that is imported for type checkers only."""

    seen: "OrderedDict[str, int]" = field(init=False, factory=dict)


class Policy:
    """What the classes of the next test are, for type checkers."""


@frozen
class Sticky(Policy):
    """The one there is."""

    seconds: float = 60.0


def find(name: str) -> type:
    """The class that is named."""
    if name != "sticky":
        raise DiscoveryError(f"nothing is named {name!r}")
    return Sticky


@frozen
class Chooser:
    """Has policies that the file names."""

    policy: Annotated[Policy, Extends(find)] = field(factory=Sticky)
    other: Annotated[Policy, Extends(find)] | None = None


def made(text: str, kind: type = Everything) -> tuple[Any, list[str]]:
    """What `text` becomes under the key `it`, and the problems without their file name."""
    document = Document.parse(f"it:\n{text}", "f")
    problems: list[str] = []
    built = structure(document, ("it",), document.data["it"], kind, problems)
    return built, [problem.removeprefix("f:") for problem in problems]
