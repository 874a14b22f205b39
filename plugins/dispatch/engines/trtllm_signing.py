"""The signatures by which TensorRT-LLM's workers know requests of their own frontend."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

import orjson

from kernel import Rejection, Secret
from plugins.dispatch.engine import Request
from plugins.dispatch.headers import is_plain
from plugins.dispatch.worker import Role
from plugins.slots import Conversation

AUTH: Final = "x-trtllm-disagg-auth"
AFFINITY: Final = "x-trtllm-subagent-affinity-id"
AFFINITY_AUTH: Final = "x-trtllm-subagent-affinity-auth"

_SIGNED: Final = ("ctx_info_endpoint", "encoded_opaque_state")


def sign(key: Secret, payload: Mapping[str, object]) -> str:
    """The HMAC-SHA256 of the compact JSON of a payload, its members in the order of their names."""
    raw = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
    return "sha256=" + hmac.new(key.reveal().encode(), raw, hashlib.sha256).hexdigest()


def check_signable(key: Secret | None, conversation: Conversation) -> None:
    """Let a request through whose headers can be signed.

    A sub-agent that workers do not know as one would lose what its parent has cached, and nobody would notice.

    Raises:
        Rejection: 500, it is a sub-agent's and there is no key: a mistake in the configuration.
    """
    if key is None and conversation.subagent_affinity:
        raise Rejection(500, "sub-agents need an internal_request_auth_key for this model's workers", "misconfigured")


def signed_headers(key: Secret, role: Role, request: Request, params: Mapping[str, Any]) -> dict[str, str]:
    """The headers of one attempt: they cover its id, so that they are made anew with it.

    Without a key there are none: a worker that wants them declines, one that has no key either only warns. Nor can
    an affinity be told that no header can hold as it is.
    """
    headers = {}
    signed = {name: _text(params.get(name)) for name in _SIGNED}
    if role is Role.GENERATION and any(value is not None for value in signed.values()):
        headers[AUTH] = sign(key, signed)
    conversation = request.conversation
    affinity = None if conversation is None else conversation.subagent_affinity
    if conversation is not None and affinity and is_plain(affinity) and params:
        payload = {
            "purpose": AFFINITY,
            "role": role.upper(),
            "model": request.payload.data.get("model"),
            "conversation_id": conversation.id,
            "subagent_affinity_id": affinity,
            "request_type": params.get("request_type"),
            "disagg_request_id": params.get("disagg_request_id"),
        }
        headers[AFFINITY] = affinity
        headers[AFFINITY_AUTH] = sign(key, payload)
    return headers


def _text(value: object) -> object:
    return value[0] if isinstance(value, list) and value else value
