"""Writes down, in one list and in order, what can be seen of a request from outside the chain."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import orjson
import structlog
from aiohttp import web
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from prometheus_client import Histogram
from prometheus_client.metrics import MetricWrapperBase

from plugins.dispatch.embedded.stub.service import Service
from plugins.metrics import REGISTRY, TOTAL_REQUESTS
from plugins.tallies import HISTOGRAM, cell_of
from tests.cells import WatchedCell

LOGGED = {"request.finished": ("status", "outcome"), "plugin.failed": ("plugin",), "resource.release_failed": ()}
UNSTEADY = ("plugin_duration", "per_token", "inter_token", "kernel_workers", "kernel_reloads")
"""Metrics that depend on how bytes were coalesced, on sampling, or on health checks."""


class Recorder(SpanProcessor):
    """The list of events, and what feeds it: metrics, log lines, spans, requests to workers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def say(self, event: str) -> None:
        """Add one event."""
        self.events.append(event)

    def on_start(self, span: Span, parent_context: object = None) -> None:
        """Note that a span was opened."""
        self.say(f"span {span.name} opened")

    def on_end(self, span: ReadableSpan) -> None:
        """Note that a span was closed."""
        self.say(f"span {span.name} closed, {span.status.status_code.name.lower()}")

    def tracer_provider(self) -> TracerProvider:
        """A provider whose spans are noted."""
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self)
        return provider

    def log(self, _logger: object, _method: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Take part in structlog's chain as a processor that notes some events and swallows all."""
        keys = LOGGED.get(values["event"])
        if keys is not None:
            said = " ".join(f"{key}={values.get(key)}" for key in keys)
            self.say(f"log {values['event']} {said}".rstrip())
        raise structlog.DropEvent

    def cell(self, cell: WatchedCell, change: float) -> None:
        """Note a change of a counter or gauge."""
        metric = next((metric for metric in _metrics() if getattr(metric, "cell", None) is cell), None)
        if metric is not None and not isinstance(metric, HISTOGRAM):
            self.metric(metric, f"{change:+g}")

    def metric(self, wrapper: MetricWrapperBase, change: str) -> None:
        """Note a change of a metric."""
        name = wrapper._name
        if not any(part in name for part in UNSTEADY):
            labels = ",".join(wrapper._labelvalues) if wrapper._labelvalues else ""
            self.say(f"metric {name}{f'[{labels}]' if labels else ''} {change}")

    def worker(self, request: web.BaseRequest, role: str) -> None:
        """Note that a worker was asked for work."""
        if request.method != "GET":
            self.say(f"worker {role} is asked {request.method} {request.path}")


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record for the length of a block."""
    assert isinstance(cell_of(TOTAL_REQUESTS), WatchedCell)
    recorder = Recorder()
    observe = HISTOGRAM.observe

    def observe_watched(self: Histogram, *arguments: Any, **named: Any) -> None:
        recorder.metric(self, "observed")
        observe(self, *arguments, **named)

    answer = Service.answer

    async def answer_watched(self: Service, engine: Any, request: web.BaseRequest) -> web.StreamResponse:
        recorder.worker(request, engine.settings.role)
        return await answer(self, engine, request)

    patches: list[Any] = [
        patch.object(WatchedCell, "watcher", recorder.cell),
        patch.object(HISTOGRAM, "observe", observe_watched),
        patch.object(Service, "answer", answer_watched),
    ]
    old = structlog.get_config()
    structlog.configure(processors=[recorder.log], cache_logger_on_first_use=False)
    for patched in patches:
        patched.start()
    try:
        yield recorder
    finally:
        for patched in patches:
            patched.stop()
        structlog.configure(**old)


def _metrics() -> Iterator[MetricWrapperBase]:
    for metric in tuple(REGISTRY._collector_to_names):
        if isinstance(metric, MetricWrapperBase):
            yield from (metric, *getattr(metric, "_metrics", {}).values())


def summary(body: bytes, content_type: str) -> list[str]:
    """What a client makes of an answer: one line for each event of a stream, equal neighbours joined."""
    if not content_type.startswith("text/event-stream"):
        return [f"client reads {_brief(body)}"]
    whole, _, rest = body.rpartition(b"\n\n")
    lines: list[str] = []
    for event in filter(None, whole.split(b"\n\n")):
        line = f"client reads {_brief(event.rpartition(b'data: ')[2])}"
        if line not in lines[-1:]:
            lines.append(line)
    return [*lines, f"client is left with {rest!r}"] if rest else lines


def _brief(data: bytes) -> str:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode(errors="replace") or "nothing"
    if value.get("error") or "detail" in value:
        return f"an error: {orjson.dumps(value).decode()}"
    return f"a {value.get('object') or value.get('type', 'thing')}"
