"""What is told to workers beside the answers: that they may stop, or let another one go."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.dispatch.client import Call, Fault, Limits
from plugins.dispatch.engine import Notice
from plugins.dispatch.pool import Pool
from plugins.dispatch.worker import Reservation, Worker
from plugins.metrics import ABORTS, child

_LIMITS: Final = Limits(connect=2.0, total=5.0)
_REFUSED: Final = (401, 403)

log = get_logger()


@define(eq=False)
class Errands:
    """Notices that no request waits for; one that was stopped for a failure is over before its worker is told."""

    _tasks: set["asyncio.Task[None]"] = field(factory=set, init=False)

    def send(self, pool: Pool, worker: Worker, notice: Notice) -> None:
        """Tell a worker something."""
        self._begin(_send(pool, worker, notice))

    def release(self, pool: Pool, reservation: Reservation, notice: Notice) -> None:
        """Have a worker do something that its partner waits for, and count it as load."""
        self._begin(_work(pool, reservation, notice))

    async def finish(self) -> None:
        """Wait until all workers were told, or cannot be."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(errand)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _post(pool: Pool, worker: Worker, notice: Notice) -> int:
    """The status of the worker's answer."""
    headers = {"content-type": "application/json", **pool.headers, **notice.headers}
    call = Call("POST", worker.url + notice.path, headers, notice.body, _LIMITS)
    response = await pool.client.send(call, fresh=True)
    response.close()
    return response.status


async def _work(pool: Pool, reservation: Reservation, notice: Notice) -> None:
    status = None
    try:
        status = await _post(pool, reservation.worker, notice)
    except Fault as fault:
        log.info("handoff.lost", model=pool.settings.model, worker=reservation.worker.url, reason=fault.detail)
    finally:
        reservation.release(success=status == 200)


async def _send(pool: Pool, worker: Worker, notice: Notice) -> None:
    result, status = "unreachable", None
    try:
        status = await _post(pool, worker, notice)
        result = "told" if status < 400 else "refused"
    except Fault as fault:
        log.info("abort.failed", worker=worker.url, reason=fault.detail)
    if status in _REFUSED:
        # without the right key every abort does nothing, and workers fill up with requests of clients that are gone
        log.error("abort.refused", worker=worker.url, status=status)
    child(ABORTS, pool.settings.model, pool.settings.role, result).inc()
