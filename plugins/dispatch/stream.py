"""A worker's stream as the source of a reply."""

from time import monotonic

from attrs import define, field

from kernel import COMPLETED, Outcome
from plugins.dispatch.client import Fault, Response
from plugins.dispatch.leg import Leg
from plugins.dispatch.worker import Worker


@define(eq=False)
class LegStream:
    """Gives the bytes of a leg's answer as they come in; `first` have come already.

    A plain object and no generator: nothing has to be closed for the leg to end.
    """

    _leg: Leg
    _response: Response
    _first: bytes
    _worker: Worker = field(init=False)
    _last: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._worker = self._leg.attempts.take()  # the one that is held
        self._last = self._worker.heard = monotonic()
        self._leg.metrics.first_token.observe(self._last - self._leg.began)

    def __aiter__(self) -> "LegStream":
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        try:
            chunk = await self._response.chunk()
        except Fault as fault:
            self._leg.fail(fault)
            raise
        if not chunk:
            self._leg.give_back(success=True)
            raise StopAsyncIteration
        now = monotonic()
        self._leg.metrics.per_token.observe(now - self._last)
        self._last = self._worker.heard = now
        return chunk

    def end(self, outcome: Outcome) -> None:
        """Hear how the stream ended."""
        if outcome.name == COMPLETED:
            self._leg.succeed()
        else:
            self._leg.abandon()
