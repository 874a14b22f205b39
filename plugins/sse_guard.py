"""Makes every stream end well: with its terminal event, or with an error in the API's own dialect."""

from typing import Final

from attrs import define, field, frozen

from kernel import FAILED, Exchange, Outcome, PluginSpec, Reply, StreamReply
from plugins.endpoints import Api
from plugins.hooks import Hooks
from plugins.slots import WorkerRejection
from plugins.sse import EventGate, MessagesGate, ResponsesGate

_GATES: Final[dict[str | None, type[EventGate]]] = {
    "openai": EventGate,
    "responses": ResponsesGate,
    "anthropic": MessagesGate,
}
"""For each grammar of streams."""

_CUT: Final = "the stream ended before the answer was complete"
_WORKER_ERROR: Final = "the worker ended the stream with an error"


@frozen
class SseGuard(Hooks):
    """End a stream that broke with the error of its API in place of the terminal event that did not come.

    That is an error object for completions and chat, an event `error` for Messages, and for Responses an event
    `error` and then `response.failed`, where the answer was begun. Whole events pass as they came; of one that
    was cut in the middle only what a client can read. A stream that ends without its terminal event counts as
    broken, and so does one in which the worker itself told of an error.
    """

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Guard what is streamed."""
        if isinstance(reply, StreamReply):
            endpoint = exchange.endpoint
            gate = _GATES.get(endpoint.grammar) if isinstance(endpoint, Api) else None
            if gate is not None:
                watch = _Watch(reply, exchange.id, gate())
                reply.attach(step=watch.gate.push, check=watch.check, close=watch.close)
        return reply


@define(eq=False)
class _Watch:
    """One stream under guard."""

    reply: StreamReply
    request_id: str
    gate: EventGate
    verdict: WorkerRejection | None = field(default=None, init=False)

    def check(self) -> Exception | None:
        gate = self.gate
        if gate.told is not None or gate.errored:
            self.verdict = gate.told or WorkerRejection(502, _WORKER_ERROR, "worker_error")
        elif not gate.done and not gate.ends_done():
            self.verdict = WorkerRejection(502, _CUT, "stream_incomplete")
        return self.verdict

    def close(self, outcome: Outcome) -> bytes:
        rest = self.gate.flush()
        # a plugin further out failed, perhaps with the terminal event in its hands
        lost = outcome.plugin not in (None, self.reply.owner) and outcome.error is not self.verdict
        if outcome.name != FAILED or ((self.gate.done or self.gate.errored) and not lost):
            return rest
        return rest + self.gate.failure(self.gate.told or outcome.error, self.request_id)


PLUGIN = PluginSpec("sse_guard", SseGuard)
