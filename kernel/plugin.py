"""The contract of a plugin: what it is called with, what it may offer besides, how it is described."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from attrs import field, frozen
from attrs.validators import deep_iterable, instance_of, optional

from kernel.exchange import Endpoint, Exchange, Slot
from kernel.reply import Reply

CallNext: TypeAlias = Callable[[Exchange], Awaitable[Reply]]
"""Runs the rest of the chain. A plugin awaits it once, or not at all."""


class Plugin(Protocol):
    """One step of the chain: a frozen attrs class whose `init` fields are its configuration."""

    async def __call__(self, exchange: Exchange, call_next: CallNext, /) -> Reply:
        """Answer, usually with what `call_next` returns; raise `Rejection` to decline."""


@runtime_checkable
class HasLifecycle(Protocol):
    """Offered by a plugin that has something to start before it serves and to stop afterwards."""

    async def start(self) -> None:
        """Get ready; an exception keeps the assembly from being used."""

    async def stop(self) -> None:
        """Give back what `start` took; called after the last exchange, also after a failed `start`."""


@runtime_checkable
class HasSuccession(Protocol):
    """Offered by a plugin that can take over parts of its predecessor in a reload."""

    def succeed(self, predecessor: Any) -> None:
        """Take over what did not change; called before `start`, with a plugin of the same class."""


@runtime_checkable
class HasReadiness(Protocol):
    """Offered by a plugin that knows whether requests can be served."""

    def unready(self) -> Sequence[str]:
        """Why not to send requests yet, one reason each; empty when ready."""


def check_name(_instance: object, _attribute: object, value: str) -> None:
    """An attrs validator: lower-case words joined by underscores."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", str(value)):
        raise ValueError(f"a plugin's name is lower-case words joined by underscores, got {value!r:.80}")


_SLOTS = deep_iterable(instance_of(Slot), instance_of(tuple))
_ENDPOINTS = optional(instance_of(frozenset))


@frozen
class PluginSpec:
    """What an entry point of the group `kernel.plugins` holds.

    A third party gives exactly one of `before` and `after`, a standard plugin's name. `needs` and `fills` are the slots
    that it reads and writes. With `fail_open` (observers only) the chain survives its faults. It sees `endpoints` only.
    """

    name: str = field(validator=check_name)
    plugin: type[Plugin]
    before: str | None = field(default=None, kw_only=True, validator=optional(instance_of(str)))
    after: str | None = field(default=None, kw_only=True, validator=optional(instance_of(str)))
    needs: tuple[Slot[Any], ...] = field(default=(), kw_only=True, validator=_SLOTS)
    fills: tuple[Slot[Any], ...] = field(default=(), kw_only=True, validator=_SLOTS)
    fail_open: bool = field(default=False, kw_only=True, validator=instance_of(bool))
    endpoints: frozenset[Endpoint] | None = field(default=None, kw_only=True, validator=_ENDPOINTS)


@frozen
class OrderLine:
    """One line of the standard order; a `required` plugin cannot be switched off."""

    name: str
    reason: str
    required: bool = False


class Telemetry(Protocol):
    """What a distribution counts of the kernel's own doings."""

    def reloaded(self, *, accepted: bool) -> None:
        """A reload was accepted, or refused."""

    def timed(self, seconds: Mapping[str, float]) -> None:
        """One sampled exchange spent these seconds in each plugin, inner plugins not counted."""


@frozen(kw_only=True)
class Standard:
    """A distribution's chain and addresses: `order` is outermost first, `endpoints` go through the chain."""

    order: tuple[OrderLine, ...]
    endpoints: tuple[Endpoint, ...]
    telemetry: Telemetry | None = None
