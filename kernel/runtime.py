"""The running kernel: starts assemblies, swaps them, drains and stops them."""

import asyncio
from collections.abc import Callable, Iterable

from structlog.stdlib import get_logger

from kernel.assembly import Assembly, build
from kernel.config import Configuration
from kernel.errors import ConfigError, KernelError
from kernel.plugin import HasLifecycle, HasReadiness, HasSuccession, Plugin, Standard

log = get_logger()


class Runtime:
    """Serves from one assembly at a time; `load` reads the configuration, `refused` is why the last was not taken."""

    def __init__(self, standard: Standard, load: Callable[[], Configuration]) -> None:
        self.endpoints = standard.endpoints
        self.refused: tuple[str, ...] = ()
        self._standard, self._load = standard, load
        self._serving: Assembly | None = None
        self._retiring: set[Assembly] = set()
        self._retirements: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    @property
    def serving(self) -> Assembly:
        """The assembly that new exchanges begin on; raises `KernelError` before `start` and after `stop`."""
        if self._serving is None:
            raise KernelError("the runtime was not started, or was stopped")
        return self._serving

    async def start(self) -> None:
        """Build and start the first assembly; raises `ConfigError`, also when a plugin does not start."""
        async with self._lock:
            self._serving = await self._prepare(None)

    async def reload(self) -> tuple[str, ...]:
        """Swap in a new assembly; returns the problems for which it was refused, with nothing changed."""
        async with self._lock:
            old = self.serving
            try:
                self._serving = new = await self._prepare(old)
            except ConfigError as error:
                self.refused = error.problems
                log.error("chain.refused", problems=list(error.problems))  # noqa: TRY400
            else:
                self.refused = ()
                self._retire(old)
                log.info("chain.swapped", plugins=[place.name for place in new.places if place.on])
            if self._standard.telemetry is not None:
                self._standard.telemetry.reloaded(accepted=not self.refused)
            return self.refused

    async def stop(self) -> None:
        """Stop every plugin after the last exchange."""
        async with self._lock:
            old, self._serving = self._serving, None
            if old is not None:
                self._retire(old)
        while self._retirements:
            await asyncio.wait(self._retirements)

    def unready(self) -> list[str]:
        """Why requests should not be sent yet; empty when they may."""
        reasons: list[str] = [] if self._serving is not None else ["not started"]
        for name, plugin in self._serving.plugins.items() if self._serving is not None else ():
            try:
                reasons += plugin.unready() if isinstance(plugin, HasReadiness) else ()
            except Exception:
                log.exception("plugin.failed", plugin=name, at="unready")
                reasons.append(f"plugin {name!r} cannot say whether it is ready")
        return reasons

    def interrupt(self, reason: KernelError) -> None:
        """Stop every exchange that is still running, those of retiring assemblies too."""
        for exchange in [exchange for assembly in self._alive() for exchange in assembly.exchanges]:
            exchange.interrupt(reason)

    def _alive(self) -> list[Assembly]:
        return [*self._retiring] if self._serving is None else [self._serving, *self._retiring]

    async def _prepare(self, previous: Assembly | None) -> Assembly:
        assembly = build(self._standard, self._load(), previous)
        started: list[Plugin] = []
        for name, plugin in _only_in(assembly, [previous] if previous is not None else []).items():
            started.append(plugin)
            try:
                before = previous.plugins.get(name) if previous is not None else None
                if isinstance(plugin, HasSuccession) and type(before) is type(plugin):
                    plugin.succeed(before)
                if isinstance(plugin, HasLifecycle):
                    await plugin.start()
            except BaseException as error:
                await _stop(started)
                if not isinstance(error, Exception | SystemExit):
                    raise
                raise ConfigError(f"plugin {name!r} did not start: {type(error).__name__}: {error}") from error
        return assembly

    def _retire(self, old: Assembly) -> None:
        self._retiring.add(old)
        task = asyncio.create_task(self._stop_when_drained(old))
        self._retirements.add(task)
        task.add_done_callback(self._retirements.discard)

    async def _stop_when_drained(self, old: Assembly) -> None:
        await old.drained()
        self._retiring.discard(old)
        await _stop(_only_in(old, self._alive()).values())


def _only_in(assembly: Assembly, others: Iterable[Assembly]) -> dict[str, Plugin]:
    """The plugins of `assembly` that no other one shares."""
    shared = {id(plugin) for other in others for plugin in other.plugins.values()}
    return {name: plugin for name, plugin in assembly.plugins.items() if id(plugin) not in shared}


async def _stop(plugins: Iterable[Plugin]) -> None:
    async def stop(plugin: HasLifecycle) -> None:
        await plugin.stop()

    for plugin in reversed([plugin for plugin in plugins if isinstance(plugin, HasLifecycle)]):
        for error in await asyncio.gather(stop(plugin), return_exceptions=True):
            if error is not None:
                log.error("plugin.stop_failed", plugin=type(plugin).__name__, exc_info=error)
