"""One leg: a phase's exchange with one worker, from the worker's choice to its last byte."""

from time import monotonic
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.answers import check_first, check_head, check_whole
from plugins.dispatch.client import (
    Call,
    ConnectFault,
    Fault,
    Limits,
    MalformedFault,
    Response,
    StaleFault,
    read_whole,
)
from plugins.dispatch.engine import Handoff, Reading
from plugins.dispatch.job import Job
from plugins.dispatch.policy import Facts
from plugins.dispatch.pool import Pool
from plugins.dispatch.rejections import no_worker
from plugins.dispatch.worker import Reservation, Role, Worker
from plugins.metrics import CONTEXT, GENERATION, LegMetrics

ATTEMPTS: Final = 3
"""Workers that a leg tries while none of them can be reached."""

ANSWER_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of a whole answer; logits and opaque state make a context worker's answer large."""

log = get_logger()


@define(eq=False)
class Leg:
    """Opened once. Whatever happens, what it holds is given back and its end is counted, both once."""

    job: Job
    role: Role
    pool: Pool = field(init=False)
    metrics: LegMetrics = field(init=False)
    began: float = field(init=False, default=0.0)
    answered: float = field(init=False, default=0.0)
    _worker: Worker | None = field(init=False, default=None)
    _reservation: Reservation | None = field(init=False, default=None)
    _response: Response | None = field(init=False, default=None)
    _counted: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.pool = self.job.service.pools[self.role]
        self.metrics = CONTEXT if self.role is Role.CONTEXT else GENERATION

    async def ask(self, handoff: Handoff | None) -> tuple[Response, Reading]:
        """Send the request and let the engine read the whole answer.

        Raises:
            Rejection: 503, no worker could be reached; or what a worker said with a status of 400 or more.
            Fault: 502 or 504, the attempt failed.
        """
        try:
            response = await self._open(handoff, self.job.service.patience.whole)
            await check_head(response, stream=False)
            answer = await read_whole(response, ANSWER_LIMIT)
            check_whole(response, answer)
            reading = self.job.service.engine.read(self.role, self.job.request, answer)
        except Rejection as error:
            self.fail(error)
            raise
        self.succeed()
        return response, reading

    async def open_stream(self, handoff: Handoff | None) -> tuple[Response, bytes]:
        """Send the request and wait for the first bytes of its stream; raises as `ask` does."""
        try:
            response = await self._open(handoff, self.job.service.patience.streamed)
            await check_head(response, stream=True)
            first = await response.chunk()
            if not first:
                raise MalformedFault("the stream ended before its first byte")
            check_first(response, first)
            self.answered = monotonic()
        except Rejection as error:
            self.fail(error)
            raise
        return response, first

    def give_back(self) -> None:
        """Be done with the worker; nothing happens the second time."""
        if self._response is not None:
            self._response.close()
        if self._reservation is not None:
            self._reservation.release()

    def succeed(self) -> None:
        """End the leg well."""
        self.give_back()
        if not self._counted:
            self._counted = True
            self.metrics.completed.inc()
            self.metrics.complete.observe(monotonic() - self.began)

    def abandon(self) -> None:
        """End the leg, if nothing else has: the client left, or the answer failed further out."""
        self.give_back()
        if not self._counted:
            self._counted = True
            self.metrics.completed.inc()
            self.metrics.error.inc()

    def fail(self, error: Rejection) -> None:
        """End the leg for `error`, log it unless it is the client's, and draw conclusions about the worker."""
        self.abandon()
        worker = self._worker
        if isinstance(error, Fault) and error.worker_down and worker is not None:
            self.pool.report(worker, error)
        if error.status >= 500:
            log.warning(
                "leg.failed",
                model=self.job.service.model,
                role=self.role,
                worker=None if worker is None else worker.url,
                status=error.status,
                reason=error.detail if isinstance(error, Fault) else error.code,
                request_id=self.job.exchange.id,
            )

    async def _open(self, handoff: Handoff | None, limits: Limits) -> Response:
        """Send the request to a worker; to another one as long as nothing could be sent."""
        self.metrics.total.inc()
        self.job.exchange.resources.push(self.abandon)
        tried: list[Worker] = []
        while True:
            worker = self._reserve(tried)
            try:
                self._response = await self._attempt(worker, handoff, limits)
            except ConnectFault as fault:
                self.pool.report(worker, fault)
                self.give_back()
                tried.append(worker)
            else:
                self.answered = monotonic()
                return self._response

    def _reserve(self, tried: list[Worker]) -> Worker:
        """Choose a worker and count its load before anything is sent, so that a burst spreads."""
        request, service = self.job.request, self.job.service
        reservation = None
        if len(tried) < ATTEMPTS:
            facts = Facts(self.role, request.payload, request.conversation)
            reservation = self.pool.reserve(facts, tried)
        self._reservation = reservation
        self._worker = None if reservation is None else reservation.worker
        if reservation is None:
            what = "could be reached" if tried else "is ready"
            raise no_worker(f"no {self.role} worker of this model {what}", service.retry_seconds)
        if tried:
            self.metrics.retry.inc()
        return reservation.worker

    async def _attempt(self, worker: Worker, handoff: Handoff | None, limits: Limits) -> Response:
        """Send the request to one worker; once more if a connection kept from earlier had gone."""
        self.job.served.workers.append(worker.url)
        try:
            return await self._send(worker, handoff, limits)
        except StaleFault as fault:
            if self.job.resent:
                raise
            self.job.resent = True
            self.metrics.retry.inc()
            log.info("connection.stale", worker=worker.url, reason=fault.detail)
            return await self._send(worker, handoff, limits, fresh=True)

    async def _send(self, worker: Worker, handoff: Handoff | None, limits: Limits, *, fresh: bool = False) -> Response:
        job = self.job
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
        return await self.pool.client.send(call, fresh=fresh)
