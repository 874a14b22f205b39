"""What a vLLM worker counts."""

from collections.abc import Sequence
from typing import Final

from plugins.dispatch.embedded.stub.engines.job import Job
from plugins.dispatch.embedded.stub.metrics import Family, Metrics
from plugins.dispatch.embedded.stub.shapes.base import Choice

_BYTES_PER_TOKEN: Final = 46_080
_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
_FAMILIES: Final = (
    Family("vllm:num_requests_running", "gauge"),
    Family("vllm:num_requests_waiting", "gauge"),
    Family("vllm:prompt_tokens_total"),
    Family(
        "vllm:prompt_tokens_by_source_total",
        label="source",
        values=("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    Family("vllm:prefix_cache_queries_total"),
    Family("vllm:prefix_cache_hits_total"),
    Family("vllm:external_prefix_cache_queries_total"),
    Family("vllm:external_prefix_cache_hits_total"),
    Family("vllm:generation_tokens_total"),
    Family("vllm:request_success_total", label="finished_reason", values=_REASONS),
    Family("vllm:nixl_bytes_transferred_sum"),
    Family("vllm:nixl_num_kv_expired_reqs_total"),
    Family("vllm:nixl_num_notifications_after_expiry_total"),
)


def vllm_metrics(model: str) -> Metrics:
    """Make the counters of a worker that has just started."""
    return Metrics(_FAMILIES, {"engine": "0", "model_name": model})


def count_prompt(metrics: Metrics, job: Job, *, cached: int, external: int, transferred: bool) -> None:
    """Count where the KV cache of a request's prompts came from."""
    tokens = job.tokens
    source = "vllm:prompt_tokens_by_source_total"
    metrics.add("vllm:prompt_tokens_total", tokens)
    metrics.add(source, tokens - cached - external, "local_compute")
    metrics.add(source, cached, "local_cache_hit")
    metrics.add(source, external, "external_kv_transfer")
    metrics.add("vllm:prefix_cache_queries_total", tokens)
    metrics.add("vllm:prefix_cache_hits_total", cached)
    if external:
        metrics.add("vllm:external_prefix_cache_queries_total", tokens - cached)
        metrics.add("vllm:external_prefix_cache_hits_total", external)
    if transferred:
        metrics.add("vllm:nixl_bytes_transferred_sum", external * _BYTES_PER_TOKEN)


def count_answer(metrics: Metrics, choices: Sequence[Choice]) -> None:
    """Count the tokens of an answer and how its choices ended."""
    metrics.add("vllm:generation_tokens_total", sum(len(choice.tokens) for choice in choices))
    for choice in choices:
        reason = choice.finish_reason if choice.finish_reason in _REASONS else "stop"
        metrics.add("vllm:request_success_total", value=reason or "stop")
