"""The attempts of one leg: which worker it is sent to, over which connection, and what is held meanwhile."""

import asyncio
from collections.abc import Iterable
from functools import partial
from time import monotonic

from attrs import define, field
from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.abilities import Reports, can
from plugins.dispatch.circuit import Verdict
from plugins.dispatch.client import Call, ConnectFault, Fault, Limits, Response, StaleFault, TransportFault
from plugins.dispatch.engine import Aborts, Handoff
from plugins.dispatch.handoffs import StaleHandoff
from plugins.dispatch.job import Job
from plugins.dispatch.policy import Facts
from plugins.dispatch.pool import Pool
from plugins.dispatch.rejections import NoWorker
from plugins.dispatch.retry import relief_of, verdict_of
from plugins.dispatch.worker import Reservation, Role, Worker
from plugins.metrics import LegMetrics
from plugins.slots import LegTimes

log = get_logger()


@define(eq=False)
class Attempts:
    """One worker at a time. `latest` is the last one chosen.

    `failed` are those that are not chosen again, and `transient` those of them whose connection broke: where there
    is no other, one of these may have another try. `sent` are the handoffs with which requests went out.
    """

    job: Job
    role: Role
    metrics: LegMetrics
    pool: Pool = field(init=False)
    facts: Facts = field(init=False)
    worker: Worker | None = field(init=False, default=None)
    latest: Worker | None = field(init=False, default=None)
    began: float = field(init=False, default=0.0)
    failed: list[Worker] = field(init=False, factory=list)
    transient: list[Worker] = field(init=False, factory=list)
    sent: list[Handoff] = field(init=False, factory=list)
    _partner: tuple[Worker, int] | None = field(init=False, default=None)
    _prepared: bool = field(init=False, default=False)
    _fresh: bool = field(init=False, default=False)
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

    def follow(self, partner: Worker | None) -> None:
        """Go on with the handoff that a worker has just made."""
        self._partner = None if partner is None else (partner, partner.faults)

    def take(self, avoid: Iterable[str] = ()) -> Worker:
        """Choose a worker, unless one is held, and count its load before anything is sent, so that a burst spreads.

        A request's other leg had better not run on the same machine, which would do both halves of the work.

        Raises:
            NoWorker: 503.
        """
        if self.worker is not None:
            return self.worker
        self._reservation = self.pool.reserve(self.facts, self.failed, [*self.job.served.workers, *avoid])
        if self._reservation is None:
            raise self.unserved()
        if self.latest is not None:
            self.metrics.retry.inc()
        self.worker = self.latest = self._reservation.worker
        return self.worker

    def unserved(self) -> NoWorker:
        """What a request is told for which there is no worker."""
        what = "could be reached" if self.failed else "is ready"
        return NoWorker(f"no {self.role} worker of this model {what}", self.job.service.retry_seconds)

    async def open(self, handoff: Handoff | None, limits: Limits) -> Response:
        """Send the request to a worker; once more if a connection kept from earlier had gone.

        Raises:
            NoWorker: 503; or a `Fault`, the attempt failed.
        """
        await self.prepare()
        worker = self.take()
        if self.job.service.links is not None and handoff is not None:
            await self.job.service.links.ensure(handoff, worker)
        self.job.served.workers.append(worker.url)
        try:
            self._response = await self._send(worker, handoff, limits)
        except StaleFault as fault:
            if self.job.resent or not self.job.retries.config.resend_on_stale or (handoff and handoff.once):
                raise TransportFault(fault.detail) from fault
            self.job.resent = self._fresh = True
            log.info("connection.stale", worker=worker.url, reason=fault.detail)
            if handoff is not None and not handoff.reusable:
                raise  # the worker may have read it, and parameters that are used twice give a wrong answer
            self.metrics.retry.inc()
            self._response = await self._send(worker, handoff, limits)
        return self._response

    def conclude(self, error: Rejection) -> None:
        """Give back a worker whose attempt failed, and draw conclusions about it."""
        worker, reservation = self.worker, self._reservation
        if worker is None or reservation is None:
            return
        if not isinstance(error, Fault) or isinstance(error, ConnectFault):
            self.settle()  # it has said itself that it is done, or never heard of the request
        caused = error.status >= 500 and not isinstance(error, Fault) and self._has_lost_partner()
        reservation.verdict = Verdict.NEUTRAL if caused else verdict_of(error)
        if reservation.verdict is Verdict.PRESSURE:
            self.pool.breakers.press(worker, relief_of(error))
        self.drop()
        if caused or isinstance(error, StaleFault | StaleHandoff):
            return
        self._fresh = False
        self.failed.append(worker)
        if isinstance(error, Fault) and error.worker_down:
            self.pool.report(worker, error)
            if not isinstance(error, ConnectFault):
                self.transient.append(worker)

    async def find(self, tries: int) -> bool:
        """Whether there is a worker for another try; it is waited a moment if it has to be the same one."""
        if self.pool.offers(self.failed):
            return True
        pause = self.job.retries.pause(tries)
        if not self.transient or pause is None:
            return False
        await asyncio.sleep(pause)
        self.failed = [worker for worker in self.failed if worker not in self.transient]
        self.transient = []
        return self.pool.offers(self.failed)

    def vouch(self) -> None:
        """Take note that the worker has begun to answer well."""
        if self._reservation is not None and self._reservation.probe:
            self.pool.breakers.vouch(self._reservation.worker)

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
        if worker is not None and handoff is not None and not success and can(engine, Aborts):
            self.job.service.errands.send(self.pool, worker, engine.abort(self.role, handoff))

    def _has_lost_partner(self) -> bool:
        """Whether the context worker of the handoff is down, or about to be found so, or was meanwhile."""
        if self._partner is None:
            return False
        partner, faults = self._partner
        return partner.up is not True or partner.misses > 0 or partner.faults != faults

    async def _send(self, worker: Worker, handoff: Handoff | None, limits: Limits) -> Response:
        job = self.job
        if handoff is not None and job.service.handoffs.is_stale(handoff):
            raise StaleHandoff("the handoff was held for too long")
        body = job.service.engine.body(self.role, job.request, handoff)
        headers = {**job.headers, **self.pool.headers, **body.headers}
        on_sent = None if handoff is None else partial(self.sent.append, handoff)
        call = Call("POST", worker.url + job.request.endpoint.path, headers, body.content, limits, on_sent)
        job.served.attempts += 1
        self.began = monotonic()
        if job.timing is not None and job.timing.dispatched is None:
            job.timing.dispatched = self.began
        self._runs = handoff
        response = await self.pool.client.send(call, fresh=self._fresh)
        if job.request.performance is not None:
            times = job.request.performance.legs[self.role] = LegTimes(worker.url, self.began)
            if can(job.service.engine, Reports):
                job.service.engine.report(times, response.headers, monotonic())
        return response
