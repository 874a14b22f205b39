"""Where the configuration comes from, and what makes a running kernel read it again."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import define, field, frozen
from structlog.stdlib import get_logger

from kernel import ConfigError, Runtime
from plugins.configuration import Document, FileWatch, Settings
from plugins.host.instance import Record, now

POLL_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.1
"""How long a change must stay as it is: half of a file, and an empty one, may be a configuration too."""

READ_BYTES: Final = 1024 * 1024 + 1
"""One more than a configuration may have: a larger file is read no further, and refused."""

log = get_logger()


@frozen
class Source:
    """A configuration file, or a text that stands in for one."""

    path: Path | None
    text: str = ""
    name: str = "(embedded default)"

    def load(self) -> Document:
        """Read and parse it anew; raises `ConfigError`."""
        if self.path is None:
            return Document.parse(self.text, self.name)
        return Document.read(self.path)

    def read(self) -> bytes:
        """The file's bytes; raises `OSError`."""
        if self.path is None:
            return self.text.encode()
        with self.path.open("rb") as file:
            return file.read(READ_BYTES)


@define(eq=False)
class Reloader:
    """Reloads a runtime on SIGHUP and when its file's content has changed, and records how that went."""

    source: Source
    runtime: Runtime
    record: Record
    settings: Settings
    _watch: FileWatch = field(init=False)
    _hangups: int = field(default=0, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = FileWatch(self.source, self._complain)
        self._watch.take()

    def hang_up(self) -> None:
        """Handle SIGHUP."""
        self._hangups += 1
        self._run(self._answer_hangup())

    def watch(self) -> None:
        """Look at the file from now on, if there is one."""
        if self.source.path is not None:
            self._run(self._poll())

    def close(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_hangup(self) -> None:
        hangups = self._hangups
        await asyncio.to_thread(self._watch.take)
        await self._reload(hangups=hangups)

    async def _poll(self) -> None:
        while True:
            await self._watch.changed(POLL_SECONDS, SETTLE_SECONDS)
            await self._reload()

    def _complain(self, reason: str) -> None:
        log.warning("configuration.unreadable", file=str(self.source.path), error=reason)

    async def _reload(self, **changes: int) -> None:
        try:
            refused = await self.runtime.reload()
        except Exception as error:
            log.exception("chain.reload_failed")
            refused = (f"{type(error).__name__}: {error}",)
        accepted = self.record.state.reloads + (not refused)
        self.record.update(refused=refused, reloads=accepted, last_reload=now(), **changes)
        if not refused:
            self._warn_of_fixed()

    def _warn_of_fixed(self) -> None:
        """Say what else the file changed, which is read at start alone."""
        try:
            fresh = self.source.load().settings()
        except ConfigError:
            return  # changed again meanwhile: the next look sees it
        fixed = [item.name for item in attrs.fields(Settings) if item.name != "plugins"]
        changed = [name for name in fixed if getattr(fresh, name) != getattr(self.settings, name)]
        if changed:
            log.warning("settings.need_restart", settings=changed)
