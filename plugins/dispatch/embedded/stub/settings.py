"""What a stub worker is told at its start."""

import math
from typing import Final, TypedDict

from attrs import Attribute, field, frozen

ROLES: Final = ("context", "generation", "both")
CONTEXT_FINISHES: Final = ("length", "not_finished")


@frozen
class _OneOf:
    choices: tuple[str, ...]

    def __call__(self, _instance: object, attribute: "Attribute[str]", value: str) -> None:
        if value not in self.choices:
            raise ValueError(f"{attribute.name}: expected one of {', '.join(self.choices)}, got {value!r}")


def _not_negative(_instance: object, attribute: "Attribute[float]", value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{attribute.name}: expected a number of at least 0, got {value!r}")


def _port(_instance: object, attribute: "Attribute[int]", value: int) -> None:
    if not 0 <= value <= 65_535:
        raise ValueError(f"{attribute.name}: expected 0 to 65535, got {value!r}")


def _positive(_instance: object, attribute: "Attribute[int]", value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name}: expected at least 1, got {value!r}")


@frozen(kw_only=True)
class StubSettings:
    """One worker's engine, role and limits; durations are seconds."""

    engine: str
    role: str = field(default="both", validator=_OneOf(ROLES))
    host: str = "127.0.0.1"
    port: int = field(default=0, validator=_port)
    model: str = "stub"
    token_delay: float = field(default=0.0, validator=_not_negative)
    context_tokens: int = field(default=131_072, validator=_positive)
    tokens_per_block: int = field(default=32, validator=_positive)
    hold_seconds: float = field(default=30.0, validator=_not_negative)
    fetch_seconds: float = field(default=10.0, validator=_not_negative)
    keep_alive: float = field(default=5.0, validator=_not_negative)
    context_finish: str = field(default="length", validator=_OneOf(CONTEXT_FINISHES))
    require_msgpack: bool = False
    allow_fault_header: bool = False
    allow_chat_template: bool = False


class SettingsFields(TypedDict, total=False):
    """The fields of `StubSettings` but the engine, as keyword arguments."""

    role: str
    host: str
    port: int
    model: str
    token_delay: float
    context_tokens: int
    tokens_per_block: int
    hold_seconds: float
    fetch_seconds: float
    keep_alive: float
    context_finish: str
    require_msgpack: bool
    allow_fault_header: bool
    allow_chat_template: bool
