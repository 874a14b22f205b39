"""One request on its way through its plan."""

from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field, frozen

from kernel import Exchange
from plugins.dispatch.client import Limits
from plugins.dispatch.engine import Engine, Request
from plugins.dispatch.errands import Errands
from plugins.dispatch.handoffs import HandoffConfig
from plugins.dispatch.headers import headers_for_worker
from plugins.dispatch.introductions import Introductions
from plugins.dispatch.pool import Pool
from plugins.dispatch.worker import Role
from plugins.slots import CONVERSATION, PAYLOAD, SERVED, STREAM, TIMING, Payload, Served, Timing

_HANDOFF_FIELDS: Final = frozenset(
    (
        *("kv_transfer_params", "ec_transfer_params", "cache_hit_threshold"),  # vLLM
        *("rid", "routed_dp_rank", "disagg_prefill_dp_rank", "data_parallel_rank", "decode_tp_size"),  # SGLang
        "disaggregated_params",  # TensorRT-LLM
        *("migration_request", "with_cache", "preserve_cache"),  # LMDeploy
    )
)
_HANDOFF_PREFIX: Final = "bootstrap_"
_NESTED: Final = "vllm_xargs"
"""Where vLLM takes further fields from, as it takes those of the handoff."""


@frozen(eq=False)
class Patience:
    """How long legs may take: those that are streamed, and those that answer as a whole."""

    streamed: Limits
    whole: Limits


@frozen(eq=False)
class Service:
    """What serves one model: an engine, and a pool for each role of the engine's plan."""

    model: str
    engine: Engine
    pools: Mapping[Role, Pool]
    patience: Patience
    retry_seconds: int
    handoffs: HandoffConfig = field(factory=HandoffConfig)
    errands: Errands = field(factory=Errands)
    introductions: Introductions = field(factory=Introductions)


@define(eq=False)
class Job:
    """A request, the service that it is for, and what all of its legs share.

    `resent` once a leg was sent again for a stale connection: no request is sent more than twice.
    """

    exchange: Exchange
    service: Service
    request: Request
    headers: Mapping[str, str]
    served: Served
    timing: Timing | None
    resent: bool = False


def begin(exchange: Exchange, service: Service) -> Job:
    """Take a request up: its handoff fields are taken out, and it asks workers for the model by their name."""
    payload = exchange[PAYLOAD]
    _strip_handoffs(payload)
    if payload.data.get("model") != service.model:
        payload.edit()["model"] = service.model
    served = Served(service.model, service.engine.name, [])
    exchange[SERVED] = served
    request = Request(exchange.endpoint, payload, exchange[STREAM], exchange.get(CONVERSATION))
    return Job(exchange, service, request, headers_for_worker(exchange), served, exchange.get(TIMING))


def _strip_handoffs(payload: Payload) -> None:
    """Take the fields out by which workers hand a KV cache over.

    From a client they could name any address, stop another client's request, or crash a worker.
    """
    for name in [name for name in payload.data if _is_handoff(name)]:
        del payload.edit()[name]
    nested: Any = payload.data.get(_NESTED)
    if isinstance(nested, dict) and any(map(_is_handoff, nested)):
        payload.edit()[_NESTED] = {name: value for name, value in nested.items() if not _is_handoff(name)}


def _is_handoff(name: str) -> bool:
    return name in _HANDOFF_FIELDS or name.startswith(_HANDOFF_PREFIX)
