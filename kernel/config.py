"""What the kernel asks of a configuration, and what the fields of a plugin's class may be besides plain data."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

from attrs import field, frozen

T = TypeVar("T")

Location: TypeAlias = tuple[str | int, ...]
"""The keys and list positions that lead to a value."""


@frozen
class Secret:
    """A value that is never shown; YAML has `{env: NAME}` or `{file: PATH}` for it."""

    _value: str = field(repr=lambda _: "***")

    def reveal(self) -> str:
        """Return the value itself, which nothing may print."""
        return self._value


@frozen
class Extends:
    """Marks a type whose class the file names and `load` finds, `NAME` or `{type: NAME, ...}` with the class's keys.

    As in `policy: Annotated[Policy, Extends(load_policy)]`.
    """

    load: Callable[[str], type] = field(repr=False)


@frozen
class Switch:
    """What is said of one plugin; `before` and `after` move a third party's, `config` is structured by its class."""

    enabled: bool | None = None
    config: dict[str, object] = field(factory=dict)
    before: str | None = None
    after: str | None = None


class Configuration(Protocol):
    """One version of the configuration, read already; every problem says where it is."""

    def switches(self) -> Mapping[str, Switch]:
        """What is said of plugins, by name; raises `ConfigError` with everything that is wrong with it."""

    def plugin(self, name: str, kind: type[T], problems: list[str]) -> T | None:
        """Make the plugin `name` of what is said of it; all that is wrong with that is added to `problems`."""

    def at(self, location: Location, message: str) -> str:
        """Say where and what."""
