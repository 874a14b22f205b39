"""One leg: a phase's exchange with one worker, from the worker's choice to its last byte."""

from time import monotonic
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.answers import check_first, check_head, check_whole
from plugins.dispatch.attempts import Attempts
from plugins.dispatch.client import Fault, MalformedFault, Response, read_whole
from plugins.dispatch.engine import Handoff, Reading
from plugins.dispatch.job import Job
from plugins.dispatch.opening import Opening
from plugins.dispatch.worker import Role
from plugins.metrics import CONTEXT, GENERATION, LegMetrics

ANSWER_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of a whole answer; logits and opaque state make a context worker's answer large."""

log = get_logger()


@define(eq=False)
class Leg:
    """Opened once. Whatever happens, what it holds is given back and its end is counted, both once."""

    job: Job
    role: Role
    attempts: Attempts = field(init=False)
    metrics: LegMetrics = field(init=False)
    answered: float = field(init=False, default=0.0)
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

    async def ask(self, handoff: Handoff | None) -> tuple[Response, Reading]:
        """Send the request and let the engine read the whole answer.

        Raises:
            SpentHandoff: nothing was answered, and the handoff may not be used again.
            Rejection: 503, no worker could be reached; or what a worker said with a status of 400 or more.
            Fault: 502 or 504, the attempt failed.
        """
        response, answer = await self.fetch(handoff)
        return response, self.read(answer, handoff)

    async def fetch(self, handoff: Handoff | None) -> tuple[Response, bytes]:
        """Send the request and wait for the whole answer, which is still to be read; raises as `ask` does."""
        self._begin()
        try:
            response = await self.attempts.open(handoff, self.job.service.patience.whole)
            self.answered = monotonic()
            await check_head(response, stream=False)
            answer = await read_whole(response, ANSWER_LIMIT)
            check_whole(response, answer)
        except Rejection as error:
            self.fail(error)
            raise
        self.attempts.settle()
        return response, answer

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

    async def open_stream(self, handoff: Handoff | None) -> tuple[Response, bytes]:
        """Send the request and wait for the first bytes of its stream; raises as `ask` does.

        With a handoff it is waited for bytes that say something: before, the KV cache may not have come.
        """
        self._begin()
        try:
            response = await self.attempts.open(handoff, self.job.service.patience.streamed)
            await check_head(response, stream=True)
            first = await _first(response) if handoff is None else await Opening().read(response)
            self.answered = monotonic()
        except Rejection as error:
            self.fail(error)
            raise
        return response, first

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

    def fail(self, error: Rejection) -> None:
        """End the leg for `error`, log it unless it is the client's, and draw conclusions about the worker."""
        worker = self.attempts.worker
        if not isinstance(error, Fault):
            self.attempts.settle()  # the worker has said itself that it is done
        self.abandon()
        if isinstance(error, Fault) and error.worker_down and worker is not None:
            self.attempts.pool.report(worker, error)
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

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.metrics.total.inc()


async def _first(response: Response) -> bytes:
    first = await response.chunk()
    if not first:
        raise MalformedFault("the stream ended before its first byte")
    check_first(response, first)
    return first
