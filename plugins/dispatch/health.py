"""The health of a pool's workers: probes, what traffic tells, and who therefore takes requests."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.dispatch.client import Call, Client, Fault, Limits, read_whole
from plugins.dispatch.config import HealthConfig
from plugins.dispatch.worker import Role, Worker
from plugins.metrics import WORKERS, WORKERS_UP, child

AT_ONCE: Final = 32
"""Probes of one pool that run at the same time."""

_BODY_LIMIT: Final = 64 * 1024
_JITTER: Final = 0.2

log = get_logger()


@define(eq=False)
class Watch:
    """Probes workers for as long as it runs; `ready` are those that are up, in configured order.

    A worker is out until its first good probe; `turned` hears of each change. `headers` go with each probe, which
    takes a new connection: one that was kept would not show that the worker still accepts any.
    """

    model: str
    role: Role
    workers: Sequence[Worker]
    config: HealthConfig
    client: Client
    headers: Mapping[str, str]
    turned: Callable[[Worker], None]
    ready: tuple[Worker, ...] = field(default=(), init=False)
    _limits: Limits = field(init=False)
    _turns: asyncio.Semaphore = field(init=False, factory=lambda: asyncio.Semaphore(AT_ONCE))
    _hurries: dict[Worker, asyncio.Event] = field(init=False)
    _known: asyncio.Event = field(init=False, factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self._limits = Limits(connect=self.config.timeout_seconds, total=self.config.timeout_seconds)
        self._hurries = {worker: asyncio.Event() for worker in self.workers}

    def start(self) -> None:
        """Begin to probe, every worker at once."""
        child(WORKERS, self.model, self.role).inc(len(self.workers))
        self._tasks = [asyncio.create_task(self._attend(worker)) for worker in self.workers]

    async def stop(self) -> None:
        """End the probes; no worker is ready any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        child(WORKERS, self.model, self.role).dec(len(self.workers))
        child(WORKERS_UP, self.model, self.role).dec(len(self.ready))
        self.ready = ()

    async def known(self) -> None:
        """Return when every worker was probed once."""
        await self._known.wait()

    def report(self, worker: Worker, fault: Fault) -> None:
        """Take a worker that failed in traffic out, until its next good probe, which is sent at once."""
        worker.faults += 1
        self._turn(worker, up=False, reason=fault.detail)
        self._hurries[worker].set()

    async def _attend(self, worker: Worker) -> None:
        hurry = self._hurries[worker]
        while True:
            faults = worker.faults
            try:
                async with self._turns:
                    reason = await self._probe(worker)
            except Exception as error:  # one probe that fails in an unknown way must not end the watch
                log.exception("probe.failed", worker=worker.url)
                reason = f"{type(error).__name__}: {error}"
            if worker.faults == faults:  # else the probe may have been answered before the fault
                self._note(worker, reason)
            pause = self.config.interval_seconds * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await hurry.wait()
            hurry.clear()

    async def _probe(self, worker: Worker) -> str | None:
        """Why the worker is not well, or None."""
        call = Call("GET", worker.url + self.config.path, self.headers, b"", self._limits)
        try:
            response = await self.client.send(call, fresh=True)
            try:
                await read_whole(response, _BODY_LIMIT)
            finally:
                response.close()
        except Fault as fault:
            return fault.detail
        return None if response.status == 200 else f"{self.config.path} answered with status {response.status}"

    def _note(self, worker: Worker, reason: str | None) -> None:
        """Draw the conclusion from a probe."""
        worker.misses = worker.misses + 1 if reason else 0
        if reason is None:
            self._turn(worker, up=True)
        elif worker.up is None or worker.misses >= self.config.failures:
            self._turn(worker, up=False, reason=reason)

    def _turn(self, worker: Worker, *, up: bool, reason: str | None = None) -> None:
        if worker.up is up:
            return
        worker.up = up
        before = len(self.ready)
        self.ready = tuple(worker for worker in self.workers if worker.up)
        self.turned(worker)
        child(WORKERS_UP, self.model, self.role).inc(len(self.ready) - before)
        if all(worker.up is not None for worker in self.workers):
            self._known.set()
        if up:
            log.info("worker.up", model=self.model, role=self.role, worker=worker.url)
        else:
            log.warning("worker.down", model=self.model, role=self.role, worker=worker.url, reason=reason)
