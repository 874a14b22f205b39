"""One built version of the chain: which plugins, in which order, and the exchanges that began on it."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from attrs import define, field

from kernel.chain import compose
from kernel.config import Configuration
from kernel.discovery import Extension, find_extensions, load_spec, suggest
from kernel.errors import ConfigError, DiscoveryError
from kernel.exchange import Endpoint, Exchange
from kernel.order import DEFAULT, Place, resolve
from kernel.plugin import CallNext, Plugin, PluginSpec, Standard, Telemetry

TIMED_EVERY = 64  # one exchange of so many measures how long each plugin took


@define(eq=False)
class Assembly:
    """One built version of the chain, and the exchanges that began on it."""

    places: tuple[Place, ...]
    plugins: Mapping[str, Plugin]
    extensions: Mapping[str, Extension]
    telemetry: Telemetry | None = None
    exchanges: set[Exchange] = field(factory=set, init=False)
    _chains: dict[Endpoint, tuple[CallNext, CallNext]] = field(factory=dict, init=False)
    _count: int = field(default=0, init=False)
    _drained: asyncio.Event | None = field(default=None, init=False)

    def enter(self, exchange: Exchange) -> CallNext:
        """Count an exchange in, until it is released, and give the chain that it shall run through."""
        plain, timed = self._chains.get(exchange.endpoint) or self._compose(exchange.endpoint)
        self.exchanges.add(exchange)
        exchange.resources.push(partial(self._leave, exchange))
        self._count += 1
        if self.telemetry is None or self._count % TIMED_EVERY:
            return plain
        exchange.timings = []
        return timed

    def _compose(self, endpoint: Endpoint) -> tuple[CallNext, CallNext]:
        """The chain of an endpoint, without the plugins that are for others only."""
        specs = [place.spec for place in self.places if place.on and place.spec is not None]
        here = [spec for spec in specs if spec.endpoints is None or endpoint in spec.endpoints]
        named = [(spec.name, self.plugins[spec.name], spec.fail_open) for spec in here]
        return self._chains.setdefault(endpoint, (compose(named), compose(named, timed=True)))

    def _leave(self, exchange: Exchange) -> None:
        self.exchanges.discard(exchange)
        if self._drained is not None and not self.exchanges:
            self._drained.set()
        if exchange.timings and self.telemetry is not None:
            inner = [0.0, *(seconds for _, seconds in exchange.timings)]
            own = {name: seconds - less for (name, seconds), less in zip(exchange.timings, inner, strict=False)}
            self.telemetry.timed(own)

    async def drained(self) -> None:
        """Return when the last exchange has left."""
        self._drained = asyncio.Event()
        if self.exchanges:
            await self._drained.wait()


def build(standard: Standard, configuration: Configuration, previous: Assembly | None = None) -> Assembly:
    """An assembly with those plugins of `previous` whose configuration did not change; raises `ConfigError`."""
    switches = configuration.switches()
    extensions = find_extensions("kernel.plugins")
    standing = [line.name for line in standard.order]
    problems, specs, plugins = list[str](), dict[str, PluginSpec](), dict[str, Plugin]()
    for name in dict.fromkeys([*switches, *standing]):
        if name not in extensions and name not in standing:
            problems.append(configuration.at(("plugins", name), f"no such plugin{suggest(name, extensions)}"))
        if name not in extensions or switches.get(name, DEFAULT).enabled is False:
            continue
        try:
            specs[name] = load_spec(extensions[name])
        except DiscoveryError as error:
            problems += error.problems
            continue
        plugin: Any = configuration.plugin(name, specs[name].plugin, problems)
        try:
            before = previous.plugins.get(name) if previous is not None else None
            plugins[name] = before if before is not None and before == plugin else plugin
        except Exception as error:
            problems.append(f"plugin {name!r} cannot be compared with itself: {type(error).__name__}: {error}")
    if problems:
        raise ConfigError(problems)
    places = resolve(standard.order, specs, switches)
    running = {place.name: plugins[place.name] for place in places if place.on}
    return Assembly(places, running, extensions, standard.telemetry)
