"""The health of a pool's workers: probes, what traffic tells, and who therefore takes requests."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.dispatch.client import Call, Client, Fault, Limits, TimeoutFault, read_whole
from plugins.dispatch.config import HealthConfig
from plugins.dispatch.worker import Role, Worker
from plugins.metrics import WORKERS, child

AT_ONCE: Final = 32
"""Probes of one pool that run at the same time, and as many of workers that failed their last one."""

PROBES_A_SECOND: Final = 200
"""Probes of one pool at most; with more workers than that in an interval, the interval is longer."""

_BODY_LIMIT: Final = 64 * 1024
_JITTER: Final = 0.2

log = get_logger()


@define(eq=False)
class _Attendance:
    """A worker's probes; `hurry` asks for one at once."""

    hurry: asyncio.Event
    task: "asyncio.Task[None]"


@define(eq=False)
class Watch:
    """Probes each worker from when it joins until it leaves; `turned` hears when one goes up or down.

    A worker is out until its first good probe, unless it was known to be up when it joined. `headers` go with each
    probe, which takes a new connection: one that was kept would not show that the worker still accepts any.
    """

    model: str
    role: Role
    config: HealthConfig
    client: Client
    headers: Mapping[str, str]
    turned: Callable[[Worker], None]
    _limits: Limits = field(init=False)
    _turns: asyncio.Semaphore = field(init=False, factory=lambda: asyncio.Semaphore(AT_ONCE))
    _revisits: asyncio.Semaphore = field(init=False, factory=lambda: asyncio.Semaphore(AT_ONCE))
    _attended: dict[Worker, _Attendance] = field(init=False, factory=dict)
    _ending: set["asyncio.Task[None]"] = field(init=False, factory=set)
    _unknown: set[Worker] = field(init=False, factory=set)
    _known: asyncio.Event = field(init=False, factory=asyncio.Event)

    def __attrs_post_init__(self) -> None:
        self._limits = Limits(connect=self.config.timeout_seconds, total=self.config.timeout_seconds)
        self._known.set()

    def join(self, worker: Worker) -> None:
        """Begin to probe a worker, at once; nothing happens if it is probed already."""
        if worker in self._attended:
            return
        hurry = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._attend(worker, hurry))
        self._attended[worker] = _Attendance(hurry, task)
        child(WORKERS, self.model, self.role).inc()
        if worker.up is None:
            self._unknown.add(worker)
            self._known.clear()

    def leave(self, worker: Worker) -> None:
        """Probe a worker no longer."""
        attendance = self._attended.pop(worker, None)
        if attendance is None:
            return
        attendance.task.cancel()
        self._ending.add(attendance.task)
        attendance.task.add_done_callback(self._ending.discard)
        child(WORKERS, self.model, self.role).dec()
        self._learn(worker)

    async def stop(self) -> None:
        """End all probes."""
        for worker in tuple(self._attended):
            self.leave(worker)
        await asyncio.gather(*self._ending, return_exceptions=True)

    @property
    def interval_seconds(self) -> float:
        """How long it is from a worker's probe to its next one."""
        return max(self.config.interval_seconds, len(self._attended) / PROBES_A_SECOND)

    async def known(self) -> None:
        """Return when every worker was probed once."""
        await self._known.wait()

    def report(self, worker: Worker, fault: Fault) -> None:
        """Take a worker that failed in traffic out, until its next good probe, which is sent at once."""
        worker.faults += 1
        attendance = self._attended.get(worker)
        if attendance is not None:  # else it has left, and a request that it still had failed
            self._turn(worker, up=False, reason=fault.detail)
            attendance.hurry.set()

    async def _attend(self, worker: Worker, hurry: asyncio.Event) -> None:
        while True:
            faults = worker.faults
            try:
                # a probe of one that failed the last may take long, and must not hold up the others
                async with self._revisits if worker.misses else self._turns:
                    reason = await self._probe(worker)
            except Exception as error:  # one probe that fails in an unknown way must not end the watch
                log.exception("probe.failed", worker=worker.url)
                reason = f"{type(error).__name__}: {error}"
            if worker.faults == faults:  # else the probe may have been answered before the fault
                self._note(worker, reason)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.interval_seconds * random.uniform(1 - _JITTER, 1 + _JITTER)):  # noqa: S311
                    await hurry.wait()
            hurry.clear()

    async def _probe(self, worker: Worker) -> str | None:
        """Why the worker is not well, or None."""
        call = Call("GET", worker.url + self.config.path, self.headers, b"", self._limits)
        began = monotonic()
        try:
            response = await self.client.send(call, fresh=True)
            try:
                await read_whole(response, _BODY_LIMIT)
            finally:
                response.close()
        except TimeoutFault as fault:
            # a long prompt may hold this answer up in a worker that goes on with what it has
            return None if worker.up and worker.heard >= began else fault.detail
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
        self.turned(worker)
        self._learn(worker)
        if up:
            log.info("worker.up", model=self.model, role=self.role, worker=worker.url)
        else:
            log.warning("worker.down", model=self.model, role=self.role, worker=worker.url, reason=reason)

    def _learn(self, worker: Worker) -> None:
        self._unknown.discard(worker)
        if not self._unknown:
            self._known.set()
