"""What a stub worker is told at its start."""

import math
from typing import Final, TypedDict

from attrs import Attribute, field, frozen

ROLES: Final = ("context", "generation", "both")
ROLE_NAMES: Final = {"prefill": "context", "decode": "generation"}
CONNECTORS: Final = ("nixl", "nixl-push", "mooncake", "shared-storage", "lmcache")
LOAD_FAILURES: Final = ("fail", "recompute")
CONTEXT_FINISHES: Final = ("length", "not_finished")


def _role(name: str) -> str:
    return ROLE_NAMES.get(name, name)


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


def _version(_instance: object, attribute: "Attribute[str]", value: str) -> None:
    if not all(part.isascii() and part.isdigit() for part in value.split(".")) and value:
        raise ValueError(f"{attribute.name}: expected numbers with dots, got {value!r}")


def _positive(_instance: object, attribute: "Attribute[int]", value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name}: expected at least 1, got {value!r}")


@frozen(kw_only=True)
class StubSettings:
    """One worker's engine, role and limits; durations are seconds.

    `hold_seconds` is how long blocks wait to be fetched, `pair_seconds` how long one half of a pair waits for
    the other, `failure_seconds` how long a worker takes to notice that another one is dead. `side_port` is
    where other workers find this one: 0 takes a free port, and one that has no such port takes it for theirs.
    `engine_version` is the release whose behaviour is wanted, by default the newest one that was looked at.
    """

    engine: str
    role: str = field(default="both", converter=_role, validator=_OneOf(ROLES))
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
    connector: str = field(default="nixl", validator=_OneOf(CONNECTORS))
    engine_version: str = field(default="", validator=_version)
    side_port: int = field(default=0, validator=_port)
    pair_seconds: float = field(default=300.0, validator=_not_negative)
    failure_seconds: float = field(default=5.0, validator=_not_negative)
    load_failure: str = field(default="fail", validator=_OneOf(LOAD_FAILURES))
    storage_path: str = ""
    bidirectional: bool = False
    side_on_api_port: bool = False
    admin_key: str = ""
    auth_key: str = ""
    clock_skew: float = 0.0
    require_msgpack: bool = False
    allow_fault_header: bool = False
    allow_chat_template: bool = False
    allow_script: bool = False


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
    connector: str
    engine_version: str
    side_port: int
    pair_seconds: float
    failure_seconds: float
    load_failure: str
    storage_path: str
    bidirectional: bool
    side_on_api_port: bool
    admin_key: str
    auth_key: str
    clock_skew: float
    require_msgpack: bool
    allow_fault_header: bool
    allow_chat_template: bool
    allow_script: bool
