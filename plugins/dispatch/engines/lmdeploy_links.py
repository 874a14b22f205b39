"""The calls by which two of LMDeploy's workers come to know each other; their URLs are their names."""

from collections.abc import Generator, Mapping
from typing import Any, Final

import orjson

from plugins.dispatch.abilities import Step
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.worker import Role

_INFO: Final = "/distserve/engine_info"
_INITIALIZE: Final = "/distserve/p2p_initialize"
_CONNECT: Final = "/distserve/p2p_connect"
_DROP: Final = "/distserve/p2p_drop_connect"
_LINK_TYPES: Final[Mapping[str, int]] = {"IB": 1, "RoCE": 2}
_RDMA: Final = 2
_SUCCESS: Final = 1


def connect(context: str, generation: str, protocol: int, link_type: str) -> Generator[Step, Any, None]:
    """Ask both who they are, let each get ready for the other, and tell each where the other one listens.

    Raises:
        MalformedFault: 502, they are not split alike over their GPUs, or one of them failed.
    """
    names = {Role.CONTEXT: context, Role.GENERATION: generation}
    told = {}
    for role in names:
        told[role] = _config((yield Step(role, _INFO)))
    if told[Role.CONTEXT].get("tp_size") != told[Role.GENERATION].get("tp_size"):
        raise MalformedFault("their tp_size differs", "two workers cannot be connected")
    ready = {}
    for role, other in _both_ways():
        asked = {
            "protocol": protocol,
            "local_engine_id": names[role],
            "local_engine_config": told[role],
            "remote_engine_id": names[other],
            "remote_engine_config": told[other],
            "rdma_config": {"with_gdr": True, "link_type": _LINK_TYPES[link_type]} if protocol == _RDMA else None,
        }
        ready[role] = _succeeded((yield Step(role, _INITIALIZE, orjson.dumps(asked))))
    for role, other in _both_ways():
        asked = {
            "protocol": protocol,
            "remote_engine_id": names[other],
            "remote_engine_endpoint_info": ready[other].get("engine_endpoint_info"),
            "remote_kvtransfer_endpoint_info": ready[other].get("kvtransfer_endpoint_info"),
        }
        _succeeded((yield Step(role, _CONNECT, orjson.dumps(asked))))


def disconnect(context: str, generation: str) -> Generator[Step, Any, None]:
    """Tell both that the other one is gone."""
    names = {Role.CONTEXT: context, Role.GENERATION: generation}
    for role, other in _both_ways():
        asked = {"engine_id": names[role], "remote_engine_id": names[other]}
        yield Step(role, _DROP, orjson.dumps(asked))


def _both_ways() -> tuple[tuple[Role, Role], tuple[Role, Role]]:
    return ((Role.CONTEXT, Role.GENERATION), (Role.GENERATION, Role.CONTEXT))


def _config(answer: object) -> dict[str, Any]:
    """What a worker says of itself: JSON, in a JSON string in all releases seen."""
    if isinstance(answer, str):
        try:
            answer = orjson.loads(answer)
        except orjson.JSONDecodeError:
            answer = None
    if not isinstance(answer, dict) or "tp_size" not in answer:
        raise MalformedFault("it does not say what it is", "two workers cannot be connected")
    return answer


def _succeeded(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict) or answer.get("status") != _SUCCESS:
        raise MalformedFault(f"it answered {answer!r:.100}", "two workers cannot be connected")
    return answer
