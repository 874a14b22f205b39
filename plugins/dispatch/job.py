"""One request on its way through its plan."""

from collections.abc import Mapping
from typing import Final

from attrs import define, frozen

from kernel import Exchange
from plugins.dispatch.client import Limits
from plugins.dispatch.engine import Engine, Request
from plugins.dispatch.headers import headers_for_worker
from plugins.dispatch.pool import Pool
from plugins.dispatch.worker import Role
from plugins.slots import CONVERSATION, PAYLOAD, SERVED, STREAM, TIMING, Served, Timing

HANDOFF_FIELDS: Final = frozenset(
    (
        "kv_transfer_params",  # vLLM
        "disaggregated_params",  # TensorRT-LLM
        "bootstrap_host", "bootstrap_port", "bootstrap_room",  # SGLang
        "migration_request", "with_cache", "preserve_cache",  # LMDeploy
    )
)  # fmt: skip
"""Fields by which workers hand a KV cache over. From a client they could name any address, or crash a worker."""


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
    if not HANDOFF_FIELDS.isdisjoint(payload.data):
        data = payload.edit()
        for name in HANDOFF_FIELDS:
            data.pop(name, None)
    if payload.data.get("model") != service.model:
        payload.edit()["model"] = service.model
    served = Served(service.model, service.engine.name, [])
    exchange[SERVED] = served
    request = Request(exchange.endpoint, payload, exchange[STREAM], exchange.get(CONVERSATION))
    return Job(exchange, service, request, headers_for_worker(exchange), served, exchange.get(TIMING))
