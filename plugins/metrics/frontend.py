"""The metrics with the names and buckets of TensorRT-LLM's disaggregated frontend, whose dashboards go on working."""

from typing import Final

from attrs import frozen
from prometheus_client import Counter, Histogram

from plugins.metrics.registry import LONG, SHORT, counter, histogram

TOTAL_REQUESTS: Final = counter("total_requests", "Valid requests")
STREAM_REQUESTS: Final = counter("stream_requests", "Valid requests that ask for a stream")
NONSTREAM_REQUESTS: Final = counter("nonstream_requests", "Valid requests that ask for one answer")
VALIDATION_EXCEPTIONS: Final = counter("validation_exceptions", "Bodies that are not a valid request")
HTTP_EXCEPTIONS: Final = counter("http_exceptions", "Requests declined, here or by a worker")
INTERNAL_ERRORS: Final = counter("internal_errors", "Requests that failed for a fault of the server")
TOTAL_RESPONSES: Final = counter("total_responses", "Requests that dispatch answered")
QUEUE_LATENCY: Final = histogram("queue_latency_seconds", "From arrival to dispatch", SHORT)


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
        counter(f"{prefix}_total_requests", f"Legs of the {phase} phase that were dispatched"),
        counter(f"{prefix}_error_requests", f"Legs of the {phase} phase that did not succeed"),
        counter(f"{prefix}_retry_requests", f"Further attempts of legs of the {phase} phase"),
        counter(f"{prefix}_completed_requests", f"Legs of the {phase} phase that ended, whatever their outcome"),
        histogram(f"{prefix}_first_token_latency_seconds", "From sending to the first chunk", SHORT),
        histogram(f"{prefix}_per_token_latency_seconds", "Between chunks after the first", SHORT),
        histogram(f"{prefix}_complete_latency_seconds", "From sending to the end, successes alone", LONG),
    )


CONTEXT: Final = _leg("ctx", "context (prefill)")
GENERATION: Final = _leg("gen", "generation (decode)")
