"""Measures how long a request waits, how soon it is answered, and what the kernel adds."""

from functools import partial
from time import monotonic

from attrs import define, field, frozen
from prometheus_client import Histogram

from kernel import COMPLETED, CallNext, Exchange, Outcome, PluginSpec, Reply, StreamReply
from plugins.endpoints import GENERATIVE
from plugins.metrics import FIRST_TOKEN, INTER_TOKEN, KERNEL_OVERHEAD, QUEUE_LATENCY, QUEUE_WAIT, child
from plugins.slots import BODY_SECONDS, SERVED, TIMING, Served, Timing


@frozen
class RequestTiming:
    """Fill the slot `timing` and observe the latencies of requests that reached a worker."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Stamp the stations that this plugin sees; dispatch stamps its own."""
        if exchange.endpoint not in GENERATIVE:
            return await call_next(exchange)
        timing = Timing(exchange.arrived)
        exchange[TIMING] = timing
        try:
            reply = await call_next(exchange)
        finally:
            served = exchange.get(SERVED)
            if timing.dispatched is not None and served is not None:
                _observe_wait(exchange, timing, timing.dispatched, served)
        if served is not None and timing.answered is not None and timing.dispatched is not None:
            now, body = monotonic(), exchange.get(BODY_SECONDS) or 0.0
            own = timing.dispatched - timing.arrived - body + now - timing.answered
            child(KERNEL_OVERHEAD, exchange.endpoint.name, served.model).observe(max(own, 0.0))
        if isinstance(reply, StreamReply) and served is not None:
            first = child(FIRST_TOKEN, exchange.endpoint.name, served.model)
            later = child(INTER_TOKEN, exchange.endpoint.name, served.model)
            clock = _ChunkClock(timing, first, later)
            reply.attach(step=clock.step, end=clock.end)
        else:
            exchange.resources.push(partial(_finish, timing))
        return reply


def _observe_wait(exchange: Exchange, timing: Timing, dispatched: float, served: Served) -> None:
    waited = max(dispatched - timing.arrived, 0.0)
    QUEUE_LATENCY.observe(waited)
    child(QUEUE_WAIT, exchange.endpoint.name, served.model).observe(waited)


def _finish(timing: Timing) -> None:
    timing.finished = monotonic()


@define(eq=False)
class _ChunkClock:
    """Observes when the chunks of one stream pass."""

    timing: Timing
    first: Histogram
    later: Histogram
    last: float | None = field(default=None, init=False)

    def step(self, chunk: bytes) -> bytes:
        if not chunk:  # held back further in
            return chunk
        now = monotonic()
        if self.last is None:
            self.first.observe(now - self.timing.arrived)
        else:
            self.later.observe(now - self.last)
        self.last = now
        return chunk

    def end(self, outcome: Outcome) -> None:
        if outcome.name == COMPLETED:
            self.timing.finished = monotonic()


PLUGIN = PluginSpec("request_timing", RequestTiming, fills=(TIMING,), fail_open=True)
