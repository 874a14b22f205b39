"""What the YAML of dispatch says: models, their workers, and how their health is watched."""

from collections.abc import Iterator
from typing import Annotated, Any, Final, cast

import attrs
from attrs import Attribute, field, frozen, validators

from kernel import Extends, Secret, find_extension
from plugins.dispatch.addresses import normal_url
from plugins.dispatch.engine import Engine
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.headers import is_plain
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.policy import Policy
from plugins.dispatch.worker import Role

NAME_LIMIT: Final = 256


def check_seconds(_instance: object, attribute: "Attribute[Any]", value: float) -> None:
    """An attrs validator: a duration that is positive and ends."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{attribute.name} must be positive and finite, got {value!r}")


def load_engine(name: str) -> type[Engine]:
    """The class of the engine `name`, one from an entry point.

    Raises:
        DiscoveryError: there is none, or it cannot be used.
    """
    return cast("type[Engine]", _load("kernel.engines", name, "plan", "check", "body", "read"))


def load_policy(name: str) -> type[Policy]:
    """The class of the policy `name`, one from an entry point.

    Raises:
        DiscoveryError: there is none, or it cannot be used.
    """
    return cast("type[Policy]", _load("kernel.policies", name, "choose"))


def _load(group: str, name: str, *members: str) -> type:
    extension = find_extension(group, name)
    found = extension.load()
    if not isinstance(found, type) or not attrs.has(found):
        raise extension.unusable(f"expected an attrs class, got {found!r:.60}")
    missing = [member for member in members if not hasattr(found, member)]
    if missing:
        raise extension.unusable(f"{found.__name__} has no {', '.join(missing)}")
    return found


def _check_name(_instance: object, _attribute: "Attribute[Any]", value: str | tuple[str, ...]) -> None:
    for name in (value,) if isinstance(value, str) else value:
        if not name.strip() or not name.isprintable() or len(name) > NAME_LIMIT:
            raise ValueError(f"a model's name is 1 to {NAME_LIMIT} printable characters, got {name!r:.60}")


def _check_key(_instance: object, _attribute: "Attribute[Any]", value: Secret) -> None:
    if not is_plain(value.reveal()):
        raise ValueError("a key is printable ASCII, without line ends")


def _check_workers(_instance: object, _attribute: "Attribute[Any]", value: tuple[str, ...]) -> None:
    if not value:
        raise ValueError("there must be at least one worker")
    _refuse_twice(map(normal_url, value), "the worker {} is named twice")


@frozen
class RoleConfig:
    """The workers of one role, `http://host:port` each, and the policy that chooses among them."""

    workers: tuple[str, ...] = field(validator=_check_workers)
    policy: Annotated[Policy, Extends(load_policy)] = field(factory=RoundRobin)


@frozen
class ModelConfig:
    """A model and its workers: `workers` if one serves a whole request, else `context` and `generation`.

    `aliases` are further names; workers are asked for `model`. `api_key` is sent to the workers.
    """

    model: str = field(validator=_check_name)
    aliases: tuple[str, ...] = field(default=(), validator=_check_name)
    engine: Annotated[Engine, Extends(load_engine)] = field(factory=OpenAIEngine)
    workers: tuple[str, ...] | None = field(default=None, validator=validators.optional(_check_workers))
    policy: Annotated[Policy, Extends(load_policy)] | None = None
    context: RoleConfig | None = None
    generation: RoleConfig | None = None
    api_key: Secret | None = field(default=None, validator=validators.optional(_check_key))

    def __attrs_post_init__(self) -> None:
        single = len(self.engine.plan.legs) == 1
        wanted = ("workers",) if single else tuple(str(role) for role in self.engine.plan.legs)
        for name in ("workers", "policy", "context", "generation"):
            given = getattr(self, name) is not None
            if given and name not in wanted and not (single and name == "policy"):
                raise ValueError(f"the engine {self.engine.name!r} takes {' and '.join(wanted)}, not {name}")
            if not given and name in wanted:
                raise ValueError(f"the engine {self.engine.name!r} needs {' and '.join(wanted)}")

    def roles(self) -> dict[Role, RoleConfig]:
        """The workers of each role that the engine's plan has."""
        if self.workers is not None:
            return {self.engine.plan.legs[0]: RoleConfig(self.workers, self.policy or RoundRobin())}
        given = {Role.CONTEXT: self.context, Role.GENERATION: self.generation}
        return {role: config for role, config in given.items() if config is not None}


@frozen
class HealthConfig:
    """How workers are probed: every `interval_seconds`, for at most `timeout_seconds`, under `path`.

    A worker is taken out after `failures` failed probes in a row, or at once when a request could not reach
    it; a good probe takes it in again.
    """

    interval_seconds: float = field(default=2.0, validator=check_seconds)
    timeout_seconds: float = field(default=5.0, validator=check_seconds)
    path: str = field(default="/health", validator=validators.matches_re(r"/[!-~]*"))
    failures: int = field(default=2, validator=validators.ge(1))


def check_distinct(_instance: object, _attribute: "Attribute[Any]", value: tuple[ModelConfig, ...]) -> None:
    """An attrs validator: no name and no worker stands twice in all pools."""
    _refuse_twice((name for pool in value for name in (pool.model, *pool.aliases)), "the model {!r} stands twice")
    _refuse_twice(map(normal_url, _all_workers(value)), "the worker {} stands in two places")


def _all_workers(pools: tuple[ModelConfig, ...]) -> Iterator[str]:
    return (url for pool in pools for role in pool.roles().values() for url in role.workers)


def _refuse_twice(values: Iterator[str], message: str) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(message.format(value))
        seen.add(value)
