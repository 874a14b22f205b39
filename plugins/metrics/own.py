"""The metrics that TensorRT-LLM's frontend does not have; labels only take values that are configured or fixed."""

from collections.abc import Mapping
from typing import Final

from plugins.metrics.registry import OVERHEAD, SHORT, counter, gauge, histogram

REQUESTS: Final = counter("kernel_requests", "Requests by final status", "endpoint", "model", "status")
ERRORS: Final = counter("kernel_errors", "Requests that did not succeed, by class", "endpoint", "model", "error")
IN_FLIGHT: Final = gauge("kernel_requests_in_flight", "Requests that are being served", "livesum", "endpoint")
QUEUE_WAIT: Final = histogram("kernel_queue_wait_seconds", "From arrival to dispatch", SHORT, "endpoint", "model")
FIRST_TOKEN: Final = histogram(
    "kernel_time_to_first_token_seconds",
    "From arrival to the first bytes of a stream",
    SHORT,
    "endpoint",
    "model",
)
INTER_TOKEN: Final = histogram(
    "kernel_inter_token_seconds",
    "Between the chunks of a stream, after the first",
    SHORT,
    "endpoint",
    "model",
)
KERNEL_OVERHEAD: Final = histogram(
    "kernel_overhead_seconds",
    "Time in the kernel itself, workers and the client's sending not counted",
    OVERHEAD,
    "endpoint",
    "model",
)
PLUGIN_DURATION: Final = histogram(
    "kernel_plugin_duration_seconds",
    "Time in one plugin, inner plugins not counted; sampled",
    OVERHEAD,
    "plugin",
)
RELOADS: Final = counter("kernel_reloads", "Reloads of the configuration", "result")
WORKERS_UP: Final = gauge("kernel_workers_up", "Workers that take requests", "livemin", "model", "role")
WORKERS: Final = gauge("kernel_workers", "Workers that are configured", "livemax", "model", "role")
DISCOVERIES: Final = counter("kernel_discoveries", "Lists of workers that were found", "model", "role", "result")
BREAKERS_OPEN: Final = gauge(
    "kernel_breakers_open",
    "Workers that are ejected for their errors, or about to be tried again",
    "livemax",
    "model",
    "role",
)
EJECTIONS: Final = counter("kernel_ejections", "Workers ejected for their errors", "model", "role", "reason")
RETRIES: Final = counter("kernel_retries", "Legs that were sent again", "model", "role", "reason")
BUDGET_EXHAUSTED: Final = counter(
    "kernel_retry_budget_exhausted", "Retries that the budget did not allow", "model", "role"
)
RESERVATIONS: Final = gauge("kernel_reservations", "Load held on workers", "livesum", "model", "role")

ABORTS: Final = counter("kernel_aborts", "Workers that were told to stop a leg", "model", "role", "result")
HANDOFFS_MISSING: Final = counter(
    "kernel_handoffs_missing",
    "Answers of context workers without a handoff, so that both phases were done twice",
    "model",
)

RECORDS_LOST: Final = counter(
    "kernel_performance_records_lost", "Records of requests that were not written to the file", "reason"
)


class PrometheusTelemetry:
    """Counts the kernel's own doings."""

    def reloaded(self, *, accepted: bool) -> None:
        """Count a reload."""
        RELOADS.labels("accepted" if accepted else "refused").inc()

    def timed(self, seconds: Mapping[str, float]) -> None:
        """Record one sampled exchange's time in each plugin."""
        for name, duration in seconds.items():
            PLUGIN_DURATION.labels(name).observe(max(duration, 0.0))
