"""The attempts of one leg: which worker it is sent to, over which connection, and what is held meanwhile."""

from collections.abc import Iterable
from time import monotonic
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.client import Call, ConnectFault, Limits, Response, StaleFault, TimeoutFault
from plugins.dispatch.engine import Aborts, Handoff
from plugins.dispatch.handoffs import SpentHandoff
from plugins.dispatch.job import Job
from plugins.dispatch.policy import Facts
from plugins.dispatch.pool import Pool
from plugins.dispatch.rejections import no_worker
from plugins.dispatch.worker import Reservation, Role, Worker
from plugins.metrics import LegMetrics

ATTEMPTS: Final = 3
"""Workers that a leg tries while none of them can be reached."""

log = get_logger()


@define(eq=False)
class Attempts:
    """One worker at a time. `paired`: a worker that cannot be reached ends the attempt of the other leg as well."""

    job: Job
    role: Role
    metrics: LegMetrics
    pool: Pool = field(init=False)
    facts: Facts = field(init=False)
    worker: Worker | None = field(init=False, default=None)
    began: float = field(init=False, default=0.0)
    paired: bool = field(init=False, default=False)
    _prepared: bool = field(init=False, default=False)
    _fresh: bool = field(init=False, default=False)
    _taken: int = field(init=False, default=0)
    _tried: list[Worker] = field(init=False, factory=list)
    _reservation: Reservation | None = field(init=False, default=None)
    _response: Response | None = field(init=False, default=None)
    _runs: Handoff | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.pool = self.job.service.pools[self.role]
        self.facts = Facts(self.role, self.job.request.payload, self.job.request.conversation)

    async def prepare(self) -> None:
        """Let the policy get ready, so that nothing has to be awaited once there is a handoff."""
        if not self._prepared:
            self._prepared = True
            preparation = self.pool.prepare(self.facts)
            if preparation is not None:
                await preparation

    def take(self, avoid: Iterable[str] = ()) -> Worker:
        """Choose a worker, unless one is held, and count its load before anything is sent, so that a burst spreads.

        A request's other leg had better not run on the same machine, which would do both halves of the work.

        Raises:
            Rejection: 503, there is none.
        """
        if self.worker is not None:
            return self.worker
        if len(self._tried) < ATTEMPTS:
            self._reservation = self.pool.reserve(self.facts, self._tried, [*self.job.served.workers, *avoid])
        if self._reservation is None:
            raise self.unserved()
        if self._taken:
            self.metrics.retry.inc()
        self._taken += 1
        self.worker = self._reservation.worker
        return self.worker

    def unserved(self) -> Rejection:
        """What a request is told for which there is no worker."""
        what = "could be reached" if self._tried else "is ready"
        return no_worker(f"no {self.role} worker of this model {what}", self.job.service.retry_seconds)

    async def open(self, handoff: Handoff | None, limits: Limits) -> Response:
        """Send the request to a worker; to another one as long as nothing could be sent.

        Raises:
            SpentHandoff: it was not answered, and the handoff may not be used again.
            Rejection: 503, there is no worker; or a `Fault`, the attempt failed.
        """
        await self.prepare()
        while True:
            worker = self.take()
            try:
                self._response = await self._attempt(worker, handoff, limits)
            except ConnectFault as fault:
                self.pool.report(worker, fault)
                self.exclude()
                if handoff is not None and handoff.once:
                    raise
                if self.paired:
                    raise SpentHandoff(fault) from fault
            else:
                return self._response

    def exclude(self) -> None:
        """Give the worker back and do not choose it again: nothing could be sent to it."""
        if self.worker is not None:
            self._tried.append(self.worker)
        self._runs, self._fresh = None, False
        self.drop()

    def settle(self) -> None:
        """Take note that the worker is done with the request by itself."""
        self._runs = None

    def drop(self, *, success: bool = False) -> None:
        """Be done with the worker, which answered well or not; nothing happens the second time."""
        if self._response is not None:
            self._response.close()
        if self._reservation is not None:
            self._reservation.release(success=success)
        worker, handoff, engine = self.worker, self._runs, self.job.service.engine
        self._runs = self._reservation = self._response = self.worker = None
        if worker is not None and handoff is not None and not success and isinstance(engine, Aborts):
            self.job.service.errands.send(self.pool, worker, engine.abort(self.role, handoff))

    async def _attempt(self, worker: Worker, handoff: Handoff | None, limits: Limits) -> Response:
        """Send the request to one worker; once more if a connection kept from earlier had gone."""
        self.job.served.workers.append(worker.url)
        try:
            return await self._send(worker, handoff, limits)
        except StaleFault as fault:
            if self.job.resent or (handoff is not None and handoff.once):
                raise
            self.job.resent = self._fresh = True
            log.info("connection.stale", worker=worker.url, reason=fault.detail)
            if handoff is not None:
                # the worker may have read it: parameters that are used twice give a wrong answer that looks right
                self.drop()
                raise SpentHandoff(fault) from fault
            self.metrics.retry.inc()
            return await self._send(worker, handoff, limits)

    async def _send(self, worker: Worker, handoff: Handoff | None, limits: Limits) -> Response:
        job = self.job
        if handoff is not None and job.service.handoffs.is_stale(handoff):
            self.drop()
            log.info("handoff.stale", model=job.service.model, request_id=job.exchange.id)
            raise SpentHandoff(TimeoutFault("the handoff was held for too long"))
        body = job.service.engine.body(self.role, job.request, handoff)
        call = Call(
            "POST",
            worker.url + job.request.endpoint.path,
            {**job.headers, **self.pool.headers, **body.headers},
            body.content,
            limits,
        )
        job.served.attempts += 1
        self.began = monotonic()
        if job.timing is not None and job.timing.dispatched is None:
            job.timing.dispatched = self.began
        self._runs = handoff
        return await self.pool.client.send(call, fresh=self._fresh)
