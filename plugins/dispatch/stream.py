"""A worker's stream as the source of a reply."""

import re
from time import monotonic
from typing import Final

from kernel import COMPLETED, Outcome
from plugins.dispatch.client import Fault, Response
from plugins.dispatch.leg import Leg
from plugins.endpoints import RESPONSES

_OPENING: Final = re.compile(rb"^event: ?response\.(?:created|queued|in_progress)\b", re.MULTILINE)
_SPEAKING: Final = re.compile(rb"^event: ?(?!response\.(?:created|queued|in_progress)\b)\S", re.MULTILINE)
"""Of the API of Responses, whose streams begin long before there is a token."""


class LegStream:
    """Gives the bytes of a leg's answer as they come in; `first` have come already.

    A plain object and no generator: nothing has to be closed for the leg to end.
    """

    __slots__ = ("_chunk", "_first", "_last", "_leg", "_observe", "_silent", "_worker")

    def __init__(self, leg: Leg, response: Response, first: bytes) -> None:
        self._leg = leg
        self._first = first
        self._chunk = response.chunk
        self._observe = leg.metrics.per_token.observe
        self._worker = leg.take()  # the one that is held
        self._last = self._worker.heard = monotonic()
        opens = leg.job.request.endpoint is RESPONSES and _OPENING.search(first) is not None
        self._silent = opens and _SPEAKING.search(first) is None
        if not self._silent:
            self._speak()

    def __aiter__(self) -> "LegStream":
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        try:
            chunk = await self._chunk()
        except Fault as fault:
            self._leg.fail(fault)
            raise
        if not chunk:
            self._leg.give_back(success=True)
            raise StopAsyncIteration
        now, last = monotonic(), self._last
        self._last = self._worker.heard = now
        if not self._silent:
            self._observe(now - last)
        elif _SPEAKING.search(chunk):
            self._silent = False
            self._speak()
        return chunk

    def _speak(self) -> None:
        """Note the first token."""
        self._leg.metrics.first_token.observe(self._last - self._leg.began)
        if self._leg.job.request.performance is not None:
            self._leg.job.request.performance.first_token = self._last

    def end(self, outcome: Outcome) -> None:
        """Hear how the stream ended."""
        if outcome.name == COMPLETED:
            self._leg.succeed()
        else:
            self._leg.abandon()
