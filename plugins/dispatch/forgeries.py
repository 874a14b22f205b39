"""What of a client's body never reaches a worker: the fields by which workers hand a KV cache over."""

from typing import Any, Final

from plugins.slots import Payload

_FIELDS: Final = frozenset(
    (
        *("kv_transfer_params", "ec_transfer_params", "cache_hit_threshold"),  # vLLM
        *("rid", "routed_dp_rank", "disagg_prefill_dp_rank", "data_parallel_rank", "decode_tp_size"),  # SGLang
        "request_id",  # by which both know a request of the Responses API
        "disaggregated_params",  # TensorRT-LLM
        *("migration_request", "with_cache", "preserve_cache"),  # LMDeploy
    )
)
_PREFIX: Final = "bootstrap_"
_NESTED: Final = frozenset(("vllm_xargs", "extra_body", "extra_args", "sampling_params"))
"""Where servers take further fields from, as they take those of the handoff."""

_LOOKED_FOR: Final = _FIELDS | _NESTED


def strip_handoffs(payload: Payload) -> None:
    """Take the handoff fields out of a body that is about to be sent.

    From a client they could name any address, stop another client's request, or crash a worker.
    """
    data = payload.data
    if _LOOKED_FOR.isdisjoint(data) and _PREFIX not in "\n".join(data):
        return
    for name in [name for name in data if _is_handoff(name)]:
        del payload.edit()[name]
    for name in _NESTED:
        nested: Any = data.get(name)
        if isinstance(nested, dict) and any(map(_is_handoff, nested)):
            payload.edit()[name] = {key: value for key, value in nested.items() if not _is_handoff(key)}


def _is_handoff(name: str) -> bool:
    return name in _FIELDS or name.startswith(_PREFIX)
