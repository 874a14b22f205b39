"""What the attempts of one leg have in common: which worker it is sent to, and what is held meanwhile."""

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import Final

from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.circuit import Verdict
from plugins.dispatch.client import ConnectFault, Fault, Response, StaleFault, TransportFault
from plugins.dispatch.engine import Handoff
from plugins.dispatch.handoffs import StaleHandoff
from plugins.dispatch.job import Job
from plugins.dispatch.policy import Facts, Prepares
from plugins.dispatch.rejections import NoWorker
from plugins.dispatch.retry import relief_of, verdict_of
from plugins.dispatch.worker import Reservation, Role, Worker
from plugins.metrics import CONTEXT, GENERATION
from plugins.tallies import cell_of

_METRICS: Final = {Role.CONTEXT: CONTEXT, Role.GENERATION: GENERATION}
BEGUN: Final = {role: cell_of(metrics.total) for role, metrics in _METRICS.items()}
_ENDED: Final = {role: cell_of(metrics.completed) for role, metrics in _METRICS.items()}

log = get_logger()


class Attempts:
    """One worker at a time. Whatever happens, what is held is given back, and the leg's end is counted, both once.

    `latest` is the last worker chosen; it was sent the request when the leg `began`, and had `answered` when it had
    begun to say something. `failed` are those that are not chosen again, and `transient` those of them whose connection
    broke: where there is no other, one of these may have another try. `sent` is the last handoff with which a request
    went out, and `unready` a policy that has still to get ready. A leg that is `paired` is not tried again by itself,
    since the other one has to be as well.
    """

    __slots__ = (
        "_answering", "_begun", "_counted", "_fresh", "_partner", "_reservation", "_response", "_runs", "_tries",
        "answered", "began", "facts", "failed", "job", "latest", "metrics", "paired", "pool", "role", "sent",
        "transient", "unready", "worker",
    )  # fmt: skip

    def __init__(self, job: Job, role: Role) -> None:
        request = job.request
        self.job, self.role = job, role
        self.metrics, self.pool = _METRICS[role], job.service.pools[role]
        self.facts = Facts(role, request.payload, request.conversation)
        self.unready: Prepares | None = self.pool.prepares
        self.worker: Worker | None = None
        self.latest: Worker | None = None
        self.began = self.answered = 0.0
        self.failed: tuple[Worker, ...] = ()
        self.transient: tuple[Worker, ...] = ()
        self.sent: Handoff | None = None
        self._partner: tuple[Worker, int] | None = None
        self._reservation: Reservation | None = None
        self._response: Response | None = None
        self._runs: Handoff | None = None
        self._tries = 0
        self.paired = self._fresh = self._begun = self._answering = self._counted = False
        job.exchange.resources.push(self.abandon)

    async def prepare(self) -> None:
        """Let the policy get ready, so that nothing has to be awaited once there is a handoff."""
        policy, self.unready = self.unready, None
        preparation = None if policy is None else policy.prepare(self.facts)
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
        others = self.job.served.workers
        reservation = self.pool.reserve(self.facts, self.failed, [*others, *avoid] if avoid else others)
        if reservation is None:
            raise self.unserved()
        if self.latest is not None:
            self.metrics.retry.inc()
        self._reservation = reservation
        self.worker = self.latest = reservation.worker
        return reservation.worker

    def unserved(self) -> NoWorker:
        """What a request is told for which there is no worker."""
        what = "could be reached" if self.failed else "is ready"
        return NoWorker(f"no {self.role} worker of this model {what}", self.job.service.retry_seconds)

    def resend(self, worker: Worker, handoff: Handoff | None, fault: StaleFault) -> None:
        """Let the request be sent once more, if a connection kept from earlier had gone.

        Raises:
            Fault: it may not be.
        """
        job = self.job
        if job.resent or not job.service.retry.resend_on_stale or (handoff is not None and handoff.once):
            raise TransportFault(fault.detail) from fault
        job.resent = self._fresh = True
        log.info("connection.stale", worker=worker.url, reason=fault.detail)
        if handoff is not None and not handoff.reusable:
            raise fault  # the worker may have read it, and parameters that are used twice give a wrong answer
        self.metrics.retry.inc()

    def conclude(self, error: Rejection) -> None:
        """Give back a worker whose attempt failed, and draw conclusions about it."""
        worker, reservation = self.worker, self._reservation
        if worker is None or reservation is None:
            return
        if not isinstance(error, Fault) or isinstance(error, ConnectFault):
            self._runs = None  # it has said itself that it is done, or never heard of the request
        caused = error.status >= 500 and not isinstance(error, Fault) and self._has_lost_partner()
        reservation.verdict = Verdict.NEUTRAL if caused else verdict_of(error)
        if reservation.verdict is Verdict.PRESSURE:
            self.pool.breakers.press(worker, relief_of(error))
        self.give_back()
        if caused or isinstance(error, StaleFault | StaleHandoff):
            return
        self._fresh = False
        self.failed += (worker,)
        if isinstance(error, Fault) and error.worker_down:
            self.pool.report(worker, error)
            if not isinstance(error, ConnectFault):
                self.transient += (worker,)

    async def find(self, tries: int) -> bool:
        """Whether there is a worker for another try; it is waited a moment if it has to be the same one."""
        if self.pool.offers(self.failed):
            return True
        pause = self.job.retries.pause(tries)
        if not self.transient or pause is None:
            return False
        await asyncio.sleep(pause)
        self.failed = tuple(worker for worker in self.failed if worker not in self.transient)
        self.transient = ()
        return self.pool.offers(self.failed)

    def give_back(self, *, success: bool = False) -> None:
        """Be done with the worker, which answered well or not; nothing happens the second time."""
        worker, reservation, response, handoff = self.worker, self._reservation, self._response, self._runs
        self.worker = self._reservation = self._response = self._runs = None
        if response is not None:
            response.close()
        try:
            if reservation is not None:
                reservation.release(success=success)  # of which a policy hears, that may fail
        finally:
            if worker is not None and handoff is not None and not success:
                service = self.job.service
                if service.aborts is not None:
                    service.errands.send(self.pool, worker, service.aborts.abort(self.role, handoff))

    def succeed(self) -> None:
        """End the leg well."""
        self.give_back(success=True)
        if self._begun and not self._counted:
            self._counted = True
            _ENDED[self.role][0] += 1
            self.metrics.complete.observe(monotonic() - self.began)

    def abandon(self) -> None:
        """End the leg, if nothing else has: the client left, or the answer failed further out."""
        if self.worker is not None or self._response is not None:
            self.give_back()
        if self._begun and not self._counted:
            self._counted = True
            _ENDED[self.role][0] += 1
            self.metrics.error.inc()

    def _has_lost_partner(self) -> bool:
        """Whether the context worker of the handoff is down, or about to be found so, or was meanwhile."""
        if self._partner is None:
            return False
        partner, faults = self._partner
        return partner.up is not True or partner.misses > 0 or partner.faults != faults
