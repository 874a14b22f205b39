"""One leg: a phase's exchange with one worker, from the worker's choice to its last byte."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from time import monotonic
from typing import Any, Final, TypeVar

from attrs import define, field
from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.answers import check_head, check_whole
from plugins.dispatch.attempts import Attempts
from plugins.dispatch.client import ConnectFault, Fault, Response, read_whole
from plugins.dispatch.engine import Handoff, Reading
from plugins.dispatch.handoffs import SpentHandoff
from plugins.dispatch.job import Job
from plugins.dispatch.opening import Opening, first_bytes
from plugins.dispatch.retry import reason_of
from plugins.dispatch.worker import Role, Worker
from plugins.metrics import CONTEXT, GENERATION, LegMetrics

ANSWER_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of a whole answer; logits and opaque state make a context worker's answer large."""

T = TypeVar("T")

log = get_logger()


@define(eq=False)
class Leg:
    """Opened once, in as many attempts as it takes.

    Whatever happens, what an attempt holds is given back, and the leg's end is counted, both once. One that is
    `paired` does not try again by itself, since the other one has to as well.
    """

    job: Job
    role: Role
    attempts: Attempts = field(init=False)
    metrics: LegMetrics = field(init=False)
    answered: float = field(init=False, default=0.0)
    paired: bool = field(init=False, default=False)
    _tries: int = field(init=False, default=0)
    _answering: bool = field(init=False, default=False)
    _begun: bool = field(init=False, default=False)
    _counted: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.metrics = CONTEXT if self.role is Role.CONTEXT else GENERATION
        self.attempts = Attempts(self.job, self.role, self.metrics)
        self.job.exchange.resources.push(self.abandon)

    @property
    def began(self) -> float:
        """When the last attempt was sent."""
        return self.attempts.began

    def choose(self, avoid: Iterable[str] = ()) -> Worker:
        """Choose the worker before it is known what to send it.

        Raises:
            Rejection: 503, there is none; or what the client is told of earlier attempts.
        """
        try:
            return self.attempts.take(avoid)
        except Rejection as error:
            raise self.fail(error) from error

    async def ask(self, handoff: Handoff | None) -> tuple[Response, Reading]:
        """Send the request and let the engine read the whole answer.

        Raises:
            SpentHandoff: it is to be tried again with another handoff.
            Rejection: 503, no worker could be reached; or what a worker said with a status of 400 or more.
            Fault: 502 or 504, the attempt failed.
        """
        response, answer = await self.fetch(handoff)
        return response, self.read(answer, handoff)

    def fetch(self, handoff: Handoff | None) -> Coroutine[Any, Any, tuple[Response, bytes]]:
        """Send the request and wait for the whole answer, which is still to be read; raises as `ask` does."""
        return self._insist(self._fetch, handoff)

    def read(self, answer: bytes, handoff: Handoff | None) -> Reading:
        """Let the engine read a whole answer, which ends the leg.

        Raises:
            Rejection: 502, the answer cannot be used.
        """
        try:
            reading = self.job.service.engine.read(self.role, self.job.request, answer, handoff)
        except Rejection as error:
            self.fail(error)
            raise
        self.succeed()
        return reading

    def open_stream(self, handoff: Handoff | None) -> Coroutine[Any, Any, tuple[Response, bytes]]:
        """Send the request and wait for the first bytes of its stream; raises as `ask` does.

        With a handoff it is waited for bytes that say something: before, the KV cache may not have come.
        """
        return self._insist(self._open_stream, handoff)

    async def recover(self, error: Rejection, handoff: Handoff | None) -> bool:
        """Whether the leg may be tried again after an attempt that failed so, and was concluded."""
        retries, reason = self.job.retries, reason_of(error, answering=self._answering)
        retries.note(error)
        if reason is None or (handoff is not None and handoff.once) or not retries.allow(reason, self._tries):
            return False
        if not retries.pay(self.role, reason) or not await self.attempts.find(self._tries):
            return False
        self._tries += 1
        retries.count(self.role, reason)
        log.info("leg.retried", reason=reason, **self._seen(self.attempts.latest, error))
        return True

    def give_back(self, *, success: bool = False) -> None:
        """Be done with the worker, which answered well or not; nothing happens the second time."""
        if success:
            self.attempts.settle()
        self.attempts.drop(success=success)

    def succeed(self) -> None:
        """End the leg well."""
        self.give_back(success=True)
        if self._begun and not self._counted:
            self._counted = True
            self.metrics.completed.inc()
            self.metrics.complete.observe(monotonic() - self.began)

    def abandon(self) -> None:
        """End the leg, if nothing else has: the client left, or the answer failed further out."""
        self.give_back()
        if self._begun and not self._counted:
            self._counted = True
            self.metrics.completed.inc()
            self.metrics.error.inc()

    def fail(self, error: Rejection) -> Rejection:
        """End the leg for `error`, log it unless it is the client's, and say what the client is told."""
        worker = self.attempts.worker or self.attempts.latest
        self.attempts.conclude(error)
        self.abandon()
        if error.status >= 500:
            reason = error.detail if isinstance(error, Fault) else error.code
            log.warning("leg.failed", reason=reason, **self._seen(worker, error))
        return self.job.retries.outcome(error, self.attempts.unserved())

    def _seen(self, worker: Worker | None, error: Rejection) -> dict[str, object]:
        """What the log says of an attempt that failed."""
        return {
            "model": self.job.service.model,
            "role": self.role,
            "worker": None if worker is None else worker.url,
            "status": error.status,
            "request_id": self.job.exchange.id,
        }

    async def _insist(self, attempt: Callable[[Handoff | None], Awaitable[T]], handoff: Handoff | None) -> T:
        """Try until it is answered, or may not be tried again."""
        if not self._begun:
            self._begun = True
            self.metrics.total.inc()
        while True:
            self._answering = False
            try:
                return await attempt(handoff)
            except Rejection as error:
                self.attempts.conclude(error)
                if self.paired:
                    raise
                if not await self.recover(error, handoff):
                    raise self.fail(error) from error
                if handoff is not None and not (handoff.reusable or isinstance(error, ConnectFault)):
                    raise SpentHandoff from error

    async def _fetch(self, handoff: Handoff | None) -> tuple[Response, bytes]:
        response = await self.attempts.open(handoff, self.job.service.patience.whole)
        self.answered = monotonic()
        await check_head(response, stream=False)
        self._answering = True
        answer = await read_whole(response, ANSWER_LIMIT)
        check_whole(response, answer)
        self.attempts.settle()
        return response, answer

    async def _open_stream(self, handoff: Handoff | None) -> tuple[Response, bytes]:
        response = await self.attempts.open(handoff, self.job.service.patience.streamed)
        await check_head(response, stream=True)
        first = await first_bytes(response) if handoff is None else await Opening().read(response)
        self.answered = monotonic()
        self.attempts.vouch()
        return response, first
