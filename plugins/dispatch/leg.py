"""One leg: a phase's exchange with one worker, from the worker's choice to its last byte."""

from collections.abc import Iterable
from time import monotonic
from typing import Final

from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.answers import check_head, check_whole, fits
from plugins.dispatch.attempts import BEGUN, Attempts
from plugins.dispatch.client import Call, ConnectFault, Fault, Response, StaleFault, read_whole
from plugins.dispatch.engine import Handoff, Reading
from plugins.dispatch.handoffs import SpentHandoff, StaleHandoff
from plugins.dispatch.opening import Opening, first_bytes
from plugins.dispatch.retry import reason_of
from plugins.dispatch.worker import Worker
from plugins.slots import LegTimes

ANSWER_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of a whole answer; logits and opaque state make a context worker's answer large."""

log = get_logger()


class Leg(Attempts):
    """Opened once, in as many attempts as it takes."""

    __slots__ = ()

    def choose(self, avoid: Iterable[str] = ()) -> Worker:
        """Choose the worker before it is known what to send it.

        Raises:
            Rejection: 503, there is none; or what the client is told of earlier attempts.
        """
        try:
            return self.take(avoid)
        except Rejection as error:
            raise self.fail(error) from error

    async def open(self, handoff: Handoff | None, *, stream: bool) -> tuple[Response, bytes]:
        """Send the request, and wait for the whole answer, which is still to be read, or the first bytes of a stream.

        Raises:
            SpentHandoff: it is to be tried again with another handoff.
            Rejection: 503, no worker could be reached; what a worker said; or a `Fault`, the attempt failed.
        """
        service, send = self.job.service, self.pool.client.send
        if not self._begun:
            self._begun = True
            BEGUN[self.role][0] += 1
        while True:
            try:
                if self.unready is not None:
                    await self.prepare()
                worker = self.worker or self.take()
                if handoff is not None and service.links is not None:
                    await service.links.ensure(handoff, worker)
                self.job.served.workers.append(worker.url)
                try:
                    response = await send(self._write(worker, handoff, stream=stream), fresh=self._fresh)
                except StaleFault as fault:
                    self.resend(worker, handoff, fault)
                    response = await send(self._write(worker, handoff, stream=stream), fresh=True)
                self._response = response
                if self.job.request.performance is not None or not fits(response, stream=stream):
                    await self._look_at(response, worker, stream=stream)
                if stream:
                    return response, await self._first(response, handoff)
                self.answered, self._answering = monotonic(), True
                answer = response.rest() or await read_whole(response, ANSWER_LIMIT)
                check_whole(response, answer)
                self._runs = None
            except Rejection as error:
                await self._go_on(error, handoff)
            else:
                return response, answer

    async def ask(self, handoff: Handoff | None) -> Reading:
        """Send the request and let the engine read the whole answer; raises as `open` does."""
        _, answer = await self.open(handoff, stream=False)
        return self.read(answer, handoff)

    def read(self, answer: bytes, handoff: Handoff | None) -> Reading:
        """Let the engine read a whole answer, which ends the leg.

        Raises:
            Rejection: 502, the answer cannot be used.
        """
        job = self.job
        try:
            reading = job.service.engine.read(self.role, job.request, answer, handoff)
        except Rejection as error:
            self.fail(error)
            raise
        self.succeed()
        return reading

    async def recover(self, error: Rejection, handoff: Handoff | None) -> bool:
        """Whether the leg may be tried again after an attempt that failed so, and was concluded."""
        retries, reason = self.job.retries, reason_of(error, answering=self._answering)
        retries.note(error)
        if reason is None or (handoff is not None and handoff.once) or not retries.allow(reason, self._tries):
            return False
        if not retries.pay(self.role, reason) or not await self.find(self._tries):
            return False
        self._tries += 1
        retries.count(self.role, reason)
        log.info("leg.retried", reason=reason, **self._seen(self.latest, error))
        return True

    def fail(self, error: Rejection) -> Rejection:
        """End the leg for `error`, log it unless it is the client's, and say what the client is told."""
        worker = self.worker or self.latest
        self.conclude(error)
        self.abandon()
        if error.status >= 500:
            reason = error.detail if isinstance(error, Fault) else error.code
            log.warning("leg.failed", reason=reason, **self._seen(worker, error))
        return self.job.retries.outcome(error, self.unserved())

    def _seen(self, worker: Worker | None, error: Rejection) -> dict[str, object]:
        """What the log says of an attempt that failed."""
        return {
            "model": self.job.service.model,
            "role": self.role,
            "worker": None if worker is None else worker.url,
            "status": error.status,
            "request_id": self.job.exchange.id,
        }

    async def _go_on(self, error: Rejection, handoff: Handoff | None) -> None:
        """Return for the next attempt, if there may be one."""
        self.conclude(error)
        if self.paired:
            raise error
        if not await self.recover(error, handoff):
            raise self.fail(error) from error
        if handoff is not None and not (handoff.reusable or isinstance(error, ConnectFault)):
            raise SpentHandoff from error

    def _write(self, worker: Worker, handoff: Handoff | None, *, stream: bool) -> Call:
        """What is sent to a worker now."""
        job, pool = self.job, self.pool
        service, on_sent = job.service, None
        if handoff is not None:
            if handoff.lifetime is not None and service.handoffs.is_stale(handoff):
                raise StaleHandoff("the handoff was held for too long")
            on_sent = None if self.paired else self._note_sent
        body = service.engine.body(self.role, job.request, handoff)
        headers = job.headers
        if pool.headers or body.headers:
            headers = {**headers, **pool.headers, **body.headers}
        job.served.attempts += 1
        limits = service.patience.streamed if stream else service.patience.whole
        self.began = monotonic()
        if job.timing is not None and job.timing.dispatched is None:
            job.timing.dispatched = self.began
        self._runs, self._answering = handoff, False
        return Call("POST", worker.url + job.request.endpoint.path, headers, body.content, limits, on_sent)

    def _note_sent(self) -> None:
        self.sent = self._runs

    async def _look_at(self, response: Response, worker: Worker, *, stream: bool) -> None:
        """Keep what the head of an answer tells of the request's times, and decline one that is of another kind."""
        performance, reports = self.job.request.performance, self.job.service.reports
        if performance is not None:
            times = performance.legs[self.role] = LegTimes(worker.url, self.began)
            if reports is not None:
                reports.report(times, response.headers, monotonic())
        await check_head(response, stream=stream)

    async def _first(self, response: Response, handoff: Handoff | None) -> bytes:
        """The first bytes of a stream. With a handoff, they say something: before, the KV cache may not have come."""
        first = await first_bytes(response) if handoff is None else await Opening().read(response)
        self.answered = monotonic()
        if self._reservation is not None and self._reservation.probe:
            self.pool.breakers.vouch(self._reservation.worker)
        return first
