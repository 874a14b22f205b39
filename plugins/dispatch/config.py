"""What the YAML of dispatch says: models, their workers, and how their health is watched."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from attrs import Attribute, field, frozen, validators

from kernel import Extends, Secret
from plugins.dispatch.discovery.contract import Discovery
from plugins.dispatch.discovery.static import StaticDiscovery
from plugins.dispatch.engine import Bypasses, Engine
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.extensions import load_discovery, load_engine, load_policy
from plugins.dispatch.handoffs import HandoffConfig, check_pause
from plugins.dispatch.headers import check_key
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.policy import Policy
from plugins.dispatch.transports.choice import Transport, check_transport
from plugins.dispatch.transports.tls import TlsConfig
from plugins.dispatch.worker import Role
from plugins.dispatch.worker_config import Workers, check_workers, normal_workers, refuse_twice

NAME_LIMIT: Final = 256


def check_seconds(_instance: object, attribute: "Attribute[Any]", value: float) -> None:
    """An attrs validator: a duration that is positive and ends."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{attribute.name} must be positive and finite, got {value!r}")


def _check_name(_instance: object, _attribute: "Attribute[Any]", value: str | tuple[str, ...]) -> None:
    for name in (value,) if isinstance(value, str) else value:
        if not name.strip() or not name.isprintable() or len(name) > NAME_LIMIT:
            raise ValueError(f"a model's name is 1 to {NAME_LIMIT} printable characters, got {name!r:.60}")


@frozen
class RoleConfig:
    """The workers of one role and the policy that chooses among them.

    `workers` are `http://host:port` or `{url, weight, bootstrap_port, draining}` each; `discovery` finds others.
    """

    workers: Workers | None = field(default=None, validator=validators.optional(check_workers))
    policy: Annotated[Policy, Extends(load_policy)] = field(factory=RoundRobin)
    discovery: Annotated[Discovery, Extends(load_discovery)] | None = None

    def __attrs_post_init__(self) -> None:
        if (self.workers is None) is (self.discovery is None):
            raise ValueError("a role has either workers or a discovery")

    def finder(self) -> Discovery:
        """What names the workers."""
        return self.discovery or StaticDiscovery(normal_workers(self.workers or ()))

    def urls(self) -> Iterator[str]:
        """The addresses of workers that are known before anything runs."""
        finder = self.finder()
        return (worker.url for worker in normal_workers(getattr(finder, "workers", ())))


@frozen
class ModelConfig:
    """A model and its workers: `workers` if one serves a whole request, else `context` and `generation`.

    `discovery` finds what `workers` would name. `aliases` are further names; workers are asked for `model`. `api_key`
    is sent to the workers. `transport` is `lean` for workers without TLS and `aiohttp` for the others, unless it is
    said here for all of them; `tls` is for the others.
    """

    model: str = field(validator=_check_name)
    aliases: tuple[str, ...] = field(default=(), validator=_check_name)
    engine: Annotated[Engine, Extends(load_engine)] = field(factory=OpenAIEngine)
    workers: Workers | None = field(default=None, validator=validators.optional(check_workers))
    policy: Annotated[Policy, Extends(load_policy)] | None = None
    context: RoleConfig | None = None
    generation: RoleConfig | None = None
    api_key: Secret | None = field(default=None, validator=validators.optional(check_key))
    handoff: HandoffConfig = field(factory=HandoffConfig)
    transport: Transport | None = None
    discovery: Annotated[Discovery, Extends(load_discovery)] | None = None
    tls: TlsConfig | None = None

    def __attrs_post_init__(self) -> None:
        single = len(self.engine.plan.legs) == 1
        source = "workers" if self.discovery is None else "discovery"
        wanted = (source,) if single else tuple(str(role) for role in self.engine.plan.legs)
        for name in ("workers", "discovery", "policy", "context", "generation"):
            given = getattr(self, name) is not None
            if given and name not in wanted and not (single and name == "policy"):
                raise ValueError(f"the engine {self.engine.name!r} takes {' and '.join(wanted)}, not {name}")
            if not given and name in wanted:
                raise ValueError(f"the engine {self.engine.name!r} needs {' and '.join(wanted)}")
        self._check_plan()
        known = all(role.discovery is None for role in self.roles().values())
        check_transport(self.transport, self.tls if known else None, _all_urls((self,)))

    def _check_plan(self) -> None:
        """Refuse what the workers of the engine's plan cannot do."""
        alone = self.handoff.skip_context_below_tokens or self.handoff.alone_without_context
        if alone and not self.engine.plan.alone:
            raise ValueError(f"generation workers of the engine {self.engine.name!r} serve no whole requests")
        if isinstance(self.engine, Bypasses) and self.engine.conditional:
            policy = None if self.generation is None else self.generation.policy
            if not getattr(policy, "tells_match", False):
                raise ValueError(
                    f"the engine {self.engine.name!r} leaves the context phase out for what a generation worker has "
                    "cached: the generation policy must be one that knows, such as kv_events"
                )

    def roles(self) -> dict[Role, RoleConfig]:
        """The workers of each role that the engine's plan has."""
        if self.workers is not None or self.discovery is not None:
            return {self.engine.plan.legs[0]: RoleConfig(self.workers, self.policy or RoundRobin(), self.discovery)}
        given = {Role.CONTEXT: self.context, Role.GENERATION: self.generation}
        return {role: config for role, config in given.items() if config is not None}


@frozen
class HealthConfig:
    """How workers are probed: every `interval_seconds`, for at most `timeout_seconds`, under `path`.

    A worker is taken out after `failures` failed probes in a row, or at once when a request could not reach
    it; a good probe takes it in again. One that comes back, or comes late, gets a tenth of its share of the
    requests at first and all of it after `slow_start_seconds`; 0 switches that off.
    """

    interval_seconds: float = field(default=2.0, validator=check_seconds)
    timeout_seconds: float = field(default=5.0, validator=check_seconds)
    path: str = field(default="/health", validator=validators.matches_re(r"/[!-~]*"))
    failures: int = field(default=2, validator=validators.ge(1))
    slow_start_seconds: float = field(default=10.0, validator=check_pause)


def check_distinct(_instance: object, _attribute: "Attribute[Any]", value: tuple[ModelConfig, ...]) -> None:
    """An attrs validator: no name and no worker stands twice in all pools."""
    refuse_twice((name for pool in value for name in (pool.model, *pool.aliases)), "the model {!r} stands twice")
    refuse_twice(_all_urls(value), "the worker {} stands in two places")


def _all_urls(pools: tuple[ModelConfig, ...]) -> Iterator[str]:
    roles = (role for pool in pools for role in pool.roles().values())
    return (url for role in roles for url in role.urls())
