"""Writes records of requests to a file, a line of JSON each, off the request path."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
from attrs import define, field
from structlog.stdlib import get_logger

from plugins.metrics import RECORDS_LOST, child

QUEUE: Final = 1024
BATCH: Final = 64
START_SECONDS: Final = 5.0
FLUSH_SECONDS: Final = 5.0
LOGGED_EVERY: Final = 1000

log = get_logger()


@define(eq=False)
class Journal:
    """One file for each process and start. What cannot be written is counted and lost; requests never wait for it."""

    folder: str
    path: Path | None = field(default=None, init=False)
    lost: int = field(default=0, init=False)
    _queue: deque[Mapping[str, Any]] = field(factory=deque, init=False)
    _wake: asyncio.Event = field(factory=asyncio.Event, init=False)
    _closing: bool = field(default=False, init=False)
    _task: "asyncio.Task[None] | None" = field(default=None, init=False)

    async def start(self) -> None:
        """Make the file; where that is not possible nothing will be written, which is logged."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = Path(self.folder) / f"perf_metrics-disagg-{socket.gethostname()}-{os.getpid()}-{now}.jsonl"
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.to_thread(_create, path)
        except OSError as error:  # a timeout is one as well
            log.warning("performance.output_disabled", folder=self.folder, reason=str(error) or type(error).__name__)
            return
        self.path = path
        self._task = asyncio.get_running_loop().create_task(self._run(path))

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a record; with too many waiting, or without a file, it is lost."""
        if self._task is None:
            return
        if len(self._queue) >= QUEUE:
            self._lose(1, "overflow")
            return
        self._queue.append(record)
        self._wake.set()

    async def stop(self) -> None:
        """Write what waits, for a few seconds at most."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing = True
        self._wake.set()
        await asyncio.wait((task,), timeout=FLUSH_SECONDS)
        task.cancel()
        await asyncio.wait((task,))
        self._lose(len(self._queue), "shutdown")
        self._queue.clear()

    async def _run(self, path: Path) -> None:
        while not self._closing or self._queue:
            await self._wake.wait()
            if not self._closing:
                self._wake.clear()
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                try:
                    await asyncio.to_thread(_append, path, batch)
                except (OSError, TypeError) as error:  # of orjson's, those are TypeErrors
                    self._lose(len(batch), "error", str(error))

    def _lose(self, count: int, reason: str, detail: str | None = None) -> None:
        for _ in range(count):
            self.lost += 1
            child(RECORDS_LOST, reason).inc()
            if self.lost == 1 or self.lost % LOGGED_EVERY == 0:
                log.warning("performance.records_lost", reason=reason, detail=detail, lost=self.lost)


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab"):
        pass


def _append(path: Path, records: list[Mapping[str, Any]]) -> None:
    """Write records behind what is there; a line that an earlier attempt left torn gets its end first."""
    data = b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records)
    with path.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                data = b"\n" + data
        file.write(data)
