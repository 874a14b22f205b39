"""The answering of a checked request: its tokens in time, as a whole or as a stream."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping

from attrs import define, field

from plugins.dispatch.embedded.stub.call import Call, Stream
from plugins.dispatch.embedded.stub.endings import Death, Rejection, Stopped
from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.shapes.base import Choice, Counts, Shape
from plugins.dispatch.embedded.stub.text import Piece

_STOPPED = Piece(None, "", "abort")


class Phase:
    """What a worker does round the tokens of an answer; a worker that answers by itself does nothing."""

    async def begin(self, job: Job) -> Job:
        """Get ready for the first token; raises `Rejection`, `Death` or `Stopped`."""
        return job

    async def finish(self, job: Job, choices: list[Choice]) -> Mapping[str, object]:
        """Do what is due after the last token, and give fields for the end of the answer."""
        del job, choices
        return {}

    def lose(self) -> None:
        """Take note that the answer did not reach the client."""


@define(eq=False)
class Answer:
    """One job on its way: `delay` seconds before each token.

    `failure` is the error that a fault puts into a stream, `dress` puts an error into the envelope of the API,
    and `trailer` comes after the end marker of a stream.
    """

    call: Call
    job: Job
    shape: Shape
    delay: float
    failure: Callable[[], object]
    dress: Callable[[object], object]
    phase: Phase = field(factory=Phase)
    trailer: Callable[[], bytes] = bytes
    choices: list[Choice] = field(factory=list, init=False)
    first_token_at: float | None = field(default=None, init=False)
    _broken: bytes | None = field(default=None, init=False)
    _sent: int = field(default=0, init=False)

    @property
    def counts(self) -> Counts:
        """The tokens so far."""
        return self.job.counts(self._sent)

    async def send(self) -> None:
        """Answer, as a stream if the request asks for one."""
        try:
            if self.job.stream and not self.call.has_fault("wrong_content_type"):
                await self.call.send_stream(Stream(self._events(), self._end, self._fail))
            else:
                await self.call.send_json(await self.whole())
        except BaseException:
            self.phase.lose()
            raise

    async def whole(self) -> dict[str, object]:
        """Make the whole answer, in the time that it takes."""
        async for _index, _piece in self._steps():
            pass
        extra = await self.phase.finish(self.job, self.choices)
        return {**self.shape.whole(self.choices, self.counts), **self.job.tail, **extra}

    async def _events(self) -> AsyncGenerator[bytes, None]:
        for event in self.shape.opening(self.job.counts(0)):
            yield event
        try:
            async for index, piece in self._steps():
                for event in self.shape.step(index, piece, self.counts):
                    yield event
            self.shape.extra = {**self.job.tail, **await self.phase.finish(self.job, self.choices)}
        except Rejection as rejection:
            self.phase.lose()
            self._broken = self.shape.failure(self.dress(rejection.body))
            if self._broken is None:
                self.call.break_connection(reset=False)
        except Death:
            self.call.cut = True
            self.call.exit()
            self.call.break_connection(reset=False)
        else:
            for event in self.shape.closing(self.choices, self.counts):
                yield event

    def _end(self) -> bytes:
        if self._broken is not None:
            return self._broken
        return self.shape.end(self.choices, self.counts) + self.trailer()

    def _fail(self) -> bytes | None:
        return self.shape.failure(self.dress(self.failure()))

    async def _steps(self) -> AsyncGenerator[tuple[int, Piece], None]:
        self.choices = [Choice() for _ in range(self.job.sequences)]
        try:
            self.job = await self.phase.begin(self.job)
            self.shape.extra = self.job.tail
        except Stopped:
            self.call.stop()
        running = dict(enumerate(self.job.pieces()))
        delay = self.delay + self.call.slow
        while running:
            await self.call.pause(delay)
            self.first_token_at = self.first_token_at or time.monotonic()
            for index, pieces in list(running.items()):
                piece = _STOPPED if self.call.stopped.is_set() else next(pieces)
                if piece.finish_reason is not None:
                    del running[index]
                self.choices[index].add(piece)
                self._sent += piece.token is not None
                yield index, piece
