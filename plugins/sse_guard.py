"""Makes every stream end well: with its terminal event, or with an error in the API's own dialect."""

from typing import Final

import orjson
from attrs import define, field, frozen

from kernel import FAILED, CallNext, Exchange, Outcome, PluginSpec, Reply, StreamReply
from plugins.endpoints import GENERATIVE
from plugins.envelopes import openai_error, rejection_of
from plugins.slots import WorkerRejection
from plugins.sse import EventGate

_CUT: Final = "the stream ended before the answer was complete"
_WORKER_ERROR: Final = "the worker ended the stream with an error"


@frozen
class SseGuard:
    """End a stream that broke with an error event in place of the `data: [DONE]` that did not come.

    Whole events pass as they came; an event that was cut in the middle is dropped, since no client can
    read it. A stream that ends without its terminal event counts as broken, and so does one in which the
    worker itself told of an error.
    """

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Call on, then guard what is streamed."""
        reply = await call_next(exchange)
        if isinstance(reply, StreamReply) and exchange.endpoint in GENERATIVE:
            watch = _Watch(reply.owner)
            reply.attach(step=watch.gate.push, check=watch.check, close=watch.close)
        return reply


@define(eq=False)
class _Watch:
    """One stream under guard; `source` is the plugin that it came from."""

    source: str | None
    gate: EventGate = field(factory=EventGate, init=False)
    verdict: WorkerRejection | None = field(default=None, init=False)

    def check(self) -> Exception | None:
        if self.gate.errored:
            self.verdict = WorkerRejection(502, _WORKER_ERROR, "worker_error")
        elif not self.gate.done and not self.gate.ends_done():
            self.verdict = WorkerRejection(502, _CUT, "stream_incomplete")
        return self.verdict

    def close(self, outcome: Outcome) -> bytes:
        rest = self.gate.flush()
        # a plugin further out failed, perhaps with the terminal event in its hands
        lost = outcome.plugin not in (None, self.source) and outcome.error is not self.verdict
        if outcome.name != FAILED or ((self.gate.done or self.gate.errored) and not lost):
            return rest
        return b"data: " + orjson.dumps(openai_error(rejection_of(outcome.error))) + b"\n\n"


PLUGIN = PluginSpec("sse_guard", SseGuard)
