"""Every metric of the distribution, under one registry, and the text that Prometheus scrapes.

The metrics without the prefix `kernel_` have the names and buckets of TensorRT-LLM's disaggregated frontend,
so that its dashboards go on working. Labels only ever take values that are configured or fixed here.
"""

import os
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from attrs import frozen
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from plugins.tallies import COUNTER, GAUGE, HISTOGRAM, MULTIPROCESS

M = TypeVar("M", Counter, Gauge, Histogram)

REGISTRY: Final = CollectorRegistry(auto_describe=False)
if MULTIPROCESS not in os.environ:
    ProcessCollector(registry=REGISTRY)
    PlatformCollector(registry=REGISTRY)

SHORT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
LONG: Final = (
    0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
)  # fmt: skip
OVERHEAD: Final = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1,
)  # fmt: skip


def _counter(name: str, text: str, *labels: str) -> Counter:
    return COUNTER(name, text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return HISTOGRAM(name, text, labels, buckets=buckets, registry=REGISTRY)


TOTAL_REQUESTS: Final = _counter("total_requests", "Valid requests")
STREAM_REQUESTS: Final = _counter("stream_requests", "Valid requests that ask for a stream")
NONSTREAM_REQUESTS: Final = _counter("nonstream_requests", "Valid requests that ask for one answer")
VALIDATION_EXCEPTIONS: Final = _counter("validation_exceptions", "Bodies that are not a valid request")
HTTP_EXCEPTIONS: Final = _counter("http_exceptions", "Requests declined, here or by a worker")
INTERNAL_ERRORS: Final = _counter("internal_errors", "Requests that failed for a fault of the server")
TOTAL_RESPONSES: Final = _counter("total_responses", "Requests that dispatch answered")
QUEUE_LATENCY: Final = _histogram("queue_latency_seconds", "From arrival to dispatch", SHORT)


@frozen(eq=False)
class LegMetrics:
    """The metrics of one phase's legs, named as in TensorRT-LLM's frontend."""

    total: Counter
    error: Counter
    retry: Counter
    completed: Counter
    first_token: Histogram
    per_token: Histogram
    complete: Histogram


def _leg(prefix: str, phase: str) -> LegMetrics:
    return LegMetrics(
        _counter(f"{prefix}_total_requests", f"Legs of the {phase} phase that were dispatched"),
        _counter(f"{prefix}_error_requests", f"Legs of the {phase} phase that did not succeed"),
        _counter(f"{prefix}_retry_requests", f"Further attempts of legs of the {phase} phase"),
        _counter(f"{prefix}_completed_requests", f"Legs of the {phase} phase that ended, whatever their outcome"),
        _histogram(f"{prefix}_first_token_latency_seconds", "From sending to the first chunk", SHORT),
        _histogram(f"{prefix}_per_token_latency_seconds", "Between chunks after the first", SHORT),
        _histogram(f"{prefix}_complete_latency_seconds", "From sending to the end, successes alone", LONG),
    )


CONTEXT: Final = _leg("ctx", "context (prefill)")
GENERATION: Final = _leg("gen", "generation (decode)")

REQUESTS: Final = _counter("kernel_requests", "Requests by final status", "endpoint", "model", "status")
ERRORS: Final = _counter("kernel_errors", "Requests that did not succeed, by class", "endpoint", "model", "error")
IN_FLIGHT: Final = GAUGE(
    "kernel_requests_in_flight", "Requests that are being served", ("endpoint",),
    registry=REGISTRY, multiprocess_mode="livesum",
)  # fmt: skip
QUEUE_WAIT: Final = _histogram("kernel_queue_wait_seconds", "From arrival to dispatch", SHORT, "endpoint", "model")
FIRST_TOKEN: Final = _histogram(
    "kernel_time_to_first_token_seconds",
    "From arrival to the first bytes of a stream",
    SHORT,
    "endpoint",
    "model",
)
INTER_TOKEN: Final = _histogram(
    "kernel_inter_token_seconds",
    "Between the chunks of a stream, after the first",
    SHORT,
    "endpoint",
    "model",
)
KERNEL_OVERHEAD: Final = _histogram(
    "kernel_overhead_seconds",
    "Time in the kernel itself, workers and the client's sending not counted",
    OVERHEAD,
    "endpoint",
    "model",
)
PLUGIN_DURATION: Final = _histogram(
    "kernel_plugin_duration_seconds",
    "Time in one plugin, inner plugins not counted; sampled",
    OVERHEAD,
    "plugin",
)
RELOADS: Final = _counter("kernel_reloads", "Reloads of the configuration", "result")
WORKERS_UP: Final = GAUGE(
    "kernel_workers_up",
    "Workers that take requests",
    ("model", "role"),
    registry=REGISTRY,
    multiprocess_mode="livemin",
)
WORKERS: Final = GAUGE(
    "kernel_workers",
    "Workers that are configured",
    ("model", "role"),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
DISCOVERIES: Final = _counter("kernel_discoveries", "Lists of workers that were found", "model", "role", "result")
BREAKERS_OPEN: Final = GAUGE(
    "kernel_breakers_open",
    "Workers that are ejected for their errors, or about to be tried again",
    ("model", "role"),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
EJECTIONS: Final = _counter("kernel_ejections", "Workers ejected for their errors", "model", "role", "reason")
RETRIES: Final = _counter("kernel_retries", "Legs that were sent again", "model", "role", "reason")
BUDGET_EXHAUSTED: Final = _counter(
    "kernel_retry_budget_exhausted", "Retries that the budget did not allow", "model", "role"
)
RESERVATIONS: Final = GAUGE(
    "kernel_reservations",
    "Load held on workers",
    ("model", "role"),
    registry=REGISTRY,
    multiprocess_mode="livesum",
)

ABORTS: Final = _counter("kernel_aborts", "Workers that were told to stop a leg", "model", "role", "result")
HANDOFFS_MISSING: Final = _counter(
    "kernel_handoffs_missing",
    "Answers of context workers without a handoff, so that both phases were done twice",
    "model",
)

RECORDS_LOST: Final = _counter(
    "kernel_performance_records_lost", "Records of requests that were not written to the file", "reason"
)


_children: Final[dict[tuple[object, ...], Any]] = {}


def child(metric: M, *labels: str) -> M:
    """The child of `metric` with these labels, found faster than by the library, which locks for it."""
    key = (metric, labels)
    found = _children.get(key)
    if found is None:
        found = _children[key] = metric.labels(*labels)
    return found


class PrometheusTelemetry:
    """Counts the kernel's own doings."""

    def reloaded(self, *, accepted: bool) -> None:
        """Count a reload."""
        RELOADS.labels("accepted" if accepted else "refused").inc()

    def timed(self, seconds: Mapping[str, float]) -> None:
        """Record one sampled exchange's time in each plugin."""
        for name, duration in seconds.items():
            PLUGIN_DURATION.labels(name).observe(max(duration, 0.0))


def exposition() -> tuple[bytes, str]:
    """The metrics of every process on this port as Prometheus text, and its content type."""
    if MULTIPROCESS not in os.environ:
        return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
    merged = CollectorRegistry()
    MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
    return generate_latest(merged), CONTENT_TYPE_LATEST
