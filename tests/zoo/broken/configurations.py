"""Plugins whose configuration cannot be made, whatever the file says."""

import socket
from collections.abc import Callable

from attrs import Attribute, field, frozen

from kernel import CallNext, Exchange, PluginSpec, Reply


@frozen
class Harmless:
    """Passes on."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


@frozen
class Unstructurable(Harmless):
    """Wants an object that no file can hold."""

    connection: socket.socket


@frozen
class WantsFunction(Harmless):
    """Wants a function."""

    score: Callable[[str], float]


@frozen
class Misspelt(Harmless):
    """Names a type that does not exist."""

    limit: "Integer"  # type: ignore[name-defined]  # noqa: F821


def _explode(_instance: object, _attribute: "Attribute[int]", _value: int) -> None:
    raise KeyError("validator")


@frozen
class BadValidator(Harmless):
    """Its validator raises whatever it likes."""

    limit: int = field(default=1, validator=_explode)


@frozen
class BadInit(Harmless):
    """Cannot be made."""

    limit: int = 1

    def __attrs_post_init__(self) -> None:
        raise ZeroDivisionError("in the plugin's own init")


@frozen
class BadEquality(Harmless):
    """Cannot be compared, which is what a reload asks for."""

    limit: int = 1

    def __eq__(self, other: object) -> bool:
        raise TypeError("no comparing me")

    def __hash__(self) -> int:
        return 1


UNSTRUCTURABLE = PluginSpec("animal", Unstructurable, after="template_guard")
WANTS_FUNCTION = PluginSpec("animal", WantsFunction, after="template_guard")
MISSPELT = PluginSpec("animal", Misspelt, after="template_guard")
BAD_VALIDATOR = PluginSpec("animal", BadValidator, after="template_guard")
BAD_INIT = PluginSpec("animal", BadInit, after="template_guard")
BAD_EQUALITY = PluginSpec("animal", BadEquality, after="template_guard")
