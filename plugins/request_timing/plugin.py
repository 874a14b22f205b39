"""Measures how long a request waits, how soon it is answered, what the kernel adds, and what workers tell of it."""

from functools import partial
from time import monotonic
from typing import Any, Final

import orjson
from attrs import Attribute, Factory, define, field, frozen
from prometheus_client import Histogram

from kernel import COMPLETED, Exchange, Outcome, PluginSpec, Reply, StreamReply
from plugins.endpoints import GENERATIVE
from plugins.hooks import Hooks
from plugins.metrics import FIRST_TOKEN, INTER_TOKEN, KERNEL_OVERHEAD, QUEUE_LATENCY, QUEUE_WAIT, child
from plugins.request_timing.journal import Journal
from plugins.request_timing.record import Account
from plugins.slots import BODY_SECONDS, PERFORMANCE, SERVED, TIMING, Performance, Served, Timing
from plugins.sse import KEEP_ALIVES

_ASKS: Final = "x-trtllm-return-metrics"
_EVENT: Final = b"event: trtllm.perf_metrics\ndata: "


class _Children(dict[tuple[str, str], Histogram]):
    """A histogram by the name of the endpoint and the model."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def __missing__(self, labels: tuple[str, str]) -> Histogram:
        found = self[labels] = child(self._histogram, *labels)
        return found


_waits: Final = _Children(QUEUE_WAIT)
_overheads: Final = _Children(KERNEL_OVERHEAD)
_first_tokens: Final = _Children(FIRST_TOKEN)
_later_tokens: Final = _Children(INTER_TOKEN)


def _named(_instance: object, attribute: "Attribute[Any]", value: str | None) -> None:
    if value is not None and not value.strip():
        raise ValueError(f"{attribute.name} names no folder")


@frozen
class RequestTiming(Hooks):
    """Fill the slot `timing` and observe the latencies of requests that reached a worker.

    `return_perf_metrics`: tell a client that sends `X-TRTLLM-return-metrics: 1` how long each part of its request
    took, in headers, or in an event behind its stream. `perf_metrics_output_dir`: write the same of every request to
    a file in this folder. With both off workers are not asked.
    """

    return_perf_metrics: bool = False
    perf_metrics_output_dir: str | None = field(default=None, validator=_named)
    _journal: Journal | None = field(
        init=False,
        eq=False,
        repr=False,
        default=Factory(
            lambda self: None if self.perf_metrics_output_dir is None else Journal(self.perf_metrics_output_dir),
            takes_self=True,
        ),
    )

    async def start(self) -> None:
        """Make the file of records, if there is to be one."""
        if self._journal is not None:
            await self._journal.start()

    async def stop(self) -> None:
        """Write the last records."""
        if self._journal is not None:
            await self._journal.stop()

    def on_request(self, exchange: Exchange) -> None:
        """Note when it arrived; dispatch stamps the stations of its own."""
        if exchange.endpoint in GENERATIVE:
            exchange[TIMING] = Timing(exchange.arrived)
            if self._journal is not None or self._tells(exchange):
                exchange[PERFORMANCE] = Performance()

    def _tells(self, exchange: Exchange) -> bool:
        return self.return_perf_metrics and exchange.headers.get(_ASKS) == "1"

    def on_error(self, exchange: Exchange, _error: BaseException) -> None:
        """Observe how long it waited."""
        timing, served = exchange.get(TIMING), exchange.get(SERVED)
        if timing is not None and timing.dispatched is not None and served is not None:
            _observe_wait(exchange, timing, timing.dispatched, served)

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Observe how long it waited, and what the kernel added; of a stream more is to come."""
        timing, served = exchange.get(TIMING), exchange.get(SERVED)
        if timing is None:
            return reply
        if timing.dispatched is not None and served is not None:
            _observe_wait(exchange, timing, timing.dispatched, served)
        if served is not None and timing.answered is not None and timing.dispatched is not None:
            now, body = monotonic(), exchange.get(BODY_SECONDS) or 0.0
            own = timing.dispatched - timing.arrived - body + now - timing.answered
            _overheads[exchange.endpoint.name, served.model].observe(max(own, 0.0))
        if reply.__class__ is StreamReply:
            clock = _ChunkClock(exchange, timing, queued=timing.dispatched is None)
            reply.attach(step=clock.step, end=clock.end)
        else:
            exchange.resources.push(partial(_finish, timing))
        told = served is not None or reply.__class__ is StreamReply
        if told and reply.status < 400 and exchange.get(PERFORMANCE) is not None:
            _Report(exchange, self._journal, tells=self._tells(exchange)).attach(reply)
        return reply


@define(eq=False)
class _Report:
    """Tells the times of one request once its answer is complete."""

    exchange: Exchange
    journal: Journal | None
    tells: bool = field(kw_only=True)
    account: Account | None = field(default=None, init=False)

    def attach(self, reply: Reply) -> None:
        if isinstance(reply, StreamReply):
            reply.attach(close=self.close if self.tells else None, end=self.end)
            return
        headers = self.complete().headers() if self.tells else {}
        reply.headers.extend((name.lower().encode(), value.encode()) for name, value in headers.items())
        self.write()

    def close(self, outcome: Outcome) -> bytes:
        """The event behind a stream that was completed."""
        headers = self.complete().headers() if outcome.name == COMPLETED else {}
        return _EVENT + orjson.dumps(headers) + b"\n\n" if headers else b""

    def end(self, outcome: Outcome) -> None:
        if outcome.name == COMPLETED:
            self.write()

    def complete(self) -> Account:
        if self.account is None:
            exchange = self.exchange
            self.account = Account(exchange.id, exchange[TIMING], exchange[PERFORMANCE], monotonic())
        return self.account

    def write(self) -> None:
        account = self.complete()
        self.exchange[PERFORMANCE].record = account.record()
        if self.journal is not None:
            self.journal.add(account.line())


def _observe_wait(exchange: Exchange, timing: Timing, dispatched: float, served: Served) -> None:
    waited = max(dispatched - timing.arrived, 0.0)
    QUEUE_LATENCY.observe(waited)
    _waits[exchange.endpoint.name, served.model].observe(waited)


def _finish(timing: Timing) -> None:
    timing.finished = monotonic()


@define(eq=False)
class _ChunkClock:
    """Observes when the chunks of one stream pass; of one that was begun early only once a worker has answered."""

    exchange: Exchange
    timing: Timing
    queued: bool = field(kw_only=True)
    later: Histogram | None = field(default=None, init=False)
    last: float = field(default=0.0, init=False)

    def step(self, chunk: bytes) -> bytes:
        if not chunk or chunk in KEEP_ALIVES:  # held back further in, or not of the answer
            return chunk
        now = monotonic()
        if self.later is None:
            self._begin(now)
        else:
            self.later.observe(now - self.last)
        self.last = now
        return chunk

    def end(self, outcome: Outcome) -> None:
        if outcome.name == COMPLETED:
            self.timing.finished = monotonic()

    def _begin(self, now: float) -> None:
        served = self.exchange.get(SERVED)
        if served is not None and self.timing.answered is not None:
            if self.queued and self.timing.dispatched is not None:
                _observe_wait(self.exchange, self.timing, self.timing.dispatched, served)
            labels = self.exchange.endpoint.name, served.model
            self.later = _later_tokens[labels]
            _first_tokens[labels].observe(now - self.timing.arrived)


PLUGIN = PluginSpec("request_timing", RequestTiming, fills=(TIMING,), fail_open=True)
