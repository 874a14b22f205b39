"""Opens one span for each request and joins the caller's trace; does nothing without OpenTelemetry."""

import asyncio
from functools import partial
from math import inf
from typing import Any, Final

from attrs import define, field, frozen
from structlog.stdlib import get_logger

from kernel import ClientGone, Exchange, Outcome, PluginSpec, Rejection, Reply, Slot, StreamReply
from plugins.hooks import Hooks
from plugins.slots import SERVED, TRACE

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:  # the extra `otel` is not installed
    _INSTALLED = False
else:
    _INSTALLED = True
    _propagator: Final = TraceContextTextMapPropagator()

SPAN: Final = "disaggregated_request"

FLUSH_SECONDS: Final = 5.0
"""How long spans that are still held back may take to be sent when the plugin stops."""

LOOK_AGAIN_SECONDS: Final = 1.0
"""How soon a tracer provider that the application sets up late is noticed; asking costs more than all else here."""

log = get_logger()


@define(eq=False)
class _State:
    """What a plugin has of its own, `provider` and `exporter`, and who made the tracer that is in use."""

    provider: Any = None
    exporter: Any = None
    source: Any = None
    tracer: Any = None
    off_until: float = -inf if _INSTALLED else inf
    """Nobody records before this reading of `time.monotonic()`."""


_SPAN: Final = Slot["trace.Span"]("span")


@frozen
class TraceSpan(Hooks):
    """Open the span `disaggregated_request`, as a child of the caller's `traceparent`, and tell workers of it.

    `otlp_endpoint` sends spans to a collector over OTLP/HTTP, for example
    `http://127.0.0.1:4318/v1/traces`; without it the application's own tracer provider is used.
    """

    otlp_endpoint: str | None = None
    service_name: str = "kernel"
    _state: _State = field(factory=_State, init=False, eq=False, repr=False)

    async def start(self) -> None:
        """Set the exporter up; a missing extra is logged, not fatal."""
        if self.otlp_endpoint is None:
            return
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            log.warning("tracing.unavailable", missing=error.name, install="pip install 'disagg-kernel[otel]'")
            return
        provider = TracerProvider(resource=Resource.create({"service.name": self.service_name}))
        exporter = OTLPSpanExporter(self.otlp_endpoint)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        state = self._state
        state.provider, state.exporter, state.off_until = provider, exporter, -inf

    async def stop(self) -> None:
        """Send what is still held back, in a thread: the collector may be slow, or gone."""
        state = self._state
        provider, exporter = state.provider, state.exporter
        state.provider = state.exporter = None
        if exporter is not None:
            giving_up = asyncio.get_running_loop().call_later(FLUSH_SECONDS, exporter.shutdown)
            await asyncio.to_thread(provider.shutdown)
            giving_up.cancel()

    def on_request(self, exchange: Exchange) -> None:
        """Open a span that ends after the last byte."""
        if exchange.arrived < self._state.off_until or (tracer := self._tracer(exchange.arrived)) is None:
            return
        span = _open(tracer, exchange)
        if span.is_recording():
            exchange[_SPAN] = span
            exchange.resources.push(partial(_close, exchange, span))

    def on_error(self, exchange: Exchange, error: BaseException) -> None:
        """Say in the span what went wrong."""
        span = exchange.get(_SPAN)
        if span is not None:
            _fail(span, error)

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Say in the span what is answered."""
        span = exchange.get(_SPAN)
        if span is not None:
            span.set_attribute("http.response.status_code", reply.status)
            if reply.status >= 500:
                span.set_status(trace.StatusCode.ERROR)
            if isinstance(reply, StreamReply):
                reply.attach(end=partial(_end, span))
        return reply

    def _tracer(self, now: float) -> "trace.Tracer | None":
        """The tracer of this plugin's own provider or the application's, None while nobody records."""
        state = self._state
        provider = state.provider
        if provider is None:
            provider = trace.get_tracer_provider()
            if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
                state.off_until = now + LOOK_AGAIN_SECONDS
                return None
        if state.source is not provider:
            state.source, state.tracer = provider, provider.get_tracer("kernel")
        tracer: trace.Tracer = state.tracer
        return tracer


def _open(tracer: "trace.Tracer", exchange: Exchange) -> "trace.Span":
    """A new span, and the headers by which workers join its trace.

    Its parent is the span that the application has open round the kernel, if any, else the caller's.
    """
    parent = None
    if not trace.get_current_span().get_span_context().is_valid:
        carrier: dict[str, list[str]] = {"traceparent": [], "tracestate": []}
        for name, value in exchange.scope["headers"]:
            if name in (b"traceparent", b"tracestate"):
                carrier[name.decode()].append(value.decode("latin-1"))
        parent = _propagator.extract(carrier)
    attributes = {"http.request.method": exchange.endpoint.method, "http.route": exchange.endpoint.path}
    span = tracer.start_span(SPAN, parent, trace.SpanKind.SERVER, attributes)
    carried: dict[str, str] = {}
    _propagator.inject(carried, trace.set_span_in_context(span))
    if carried:
        exchange[TRACE] = tuple(carried.items())
    return span


def _close(exchange: Exchange, span: "trace.Span") -> None:
    span.set_attribute("kernel.request_id", exchange.id)
    served = exchange.get(SERVED)
    if served is not None:
        span.set_attribute("gen_ai.request.model", served.model)
    span.end()


def _end(span: "trace.Span", outcome: Outcome) -> None:
    if outcome.error is not None:
        _fail(span, outcome.error)


def _fail(span: "trace.Span", error: BaseException) -> None:
    """Say what went wrong. What the client alone is to blame for is no error of this server's span."""
    if isinstance(error, ClientGone):
        span.set_attribute("http.response.status_code", 499)
        return
    if isinstance(error, Rejection):
        if error.status < 500:
            return
    else:
        span.record_exception(error)
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(trace.StatusCode.ERROR, type(error).__name__)


PLUGIN = PluginSpec("trace_span", TraceSpan, fail_open=True)
