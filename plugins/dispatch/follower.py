"""Follows one discovery, for all users of a pool that asked for the same."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.dispatch.discovery.contract import Discovery
from plugins.dispatch.worker import Role
from plugins.dispatch.worker_config import WorkerConfig, check_members, normal_workers
from plugins.metrics import DISCOVERIES, child

RETRY_SECONDS: Final = 5.0
"""How long until a discovery that failed is followed again."""

WORKERS_LIMIT: Final = 10_000
"""Workers that a pool may have."""

_SHOWN: Final = 20

log = get_logger()


@define(eq=False)
class Follower:
    """Runs from its making until `stop`; `workers` are those that were named last, None as long as none were.

    `changed` hears of every new list, and `told` is set once anything was heard. What cannot be used changes nothing.
    """

    discovery: Discovery
    model: str
    role: Role
    changed: Callable[[], None]
    workers: tuple[WorkerConfig, ...] | None = field(default=None, init=False)
    told: asyncio.Event = field(factory=asyncio.Event, init=False)
    _failure: str | None = field(default=None, init=False)
    _task: "asyncio.Task[None]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Follow no longer."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def publish(self, workers: Sequence[WorkerConfig]) -> None:
        """See `Audience`."""
        self._failure = None
        try:
            if len(workers) > WORKERS_LIMIT:
                raise ValueError(f"there are more than {WORKERS_LIMIT} workers")
            given = normal_workers(tuple(workers))
            check_members(given)
        except ValueError as error:
            self.complain((str(error),))
            return
        if given != self.workers:
            self.workers = given
            child(DISCOVERIES, self.model, self.role, "accepted").inc()
            self.changed()
        self.told.set()

    def complain(self, problems: Sequence[str]) -> None:
        """See `Audience`."""
        shown = [*problems[:_SHOWN], *([f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else [])]
        kept = None if self.workers is None else len(self.workers)
        log.error("workers.refused", model=self.model, role=self.role, problems=shown, workers_kept=kept)
        child(DISCOVERIES, self.model, self.role, "refused").inc()
        self.told.set()

    async def _run(self) -> None:
        while True:
            try:
                await self.discovery.follow(self)
            except Exception as error:  # one that fails in an unknown way must not end the membership
                failure = f"{type(error).__name__}: {error}"
                if failure != self._failure:
                    log.exception("discovery.failed", model=self.model, role=self.role)
                    self.complain((failure,))
                self._failure = failure
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return
