"""The signatures by which a TensorRT-LLM worker knows requests of its own front end."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

import orjson
from attrs import frozen

from plugins.dispatch.embedded.stub.call import Call

AUTH_HEADER: Final = "x-trtllm-disagg-auth"
SUBAGENT_HEADER: Final = "x-trtllm-subagent-affinity-id"
SUBAGENT_AUTH_HEADER: Final = "x-trtllm-subagent-affinity-auth"

_PREFIX: Final = "sha256="
_SIGNED: Final = ("encoded_opaque_state", "ctx_info_endpoint")

Params = Mapping[str, object]


@frozen
class Signatures:
    """Checks the headers of a request with the key that worker and front end share; without one it checks nothing."""

    key: str
    role: str

    def problem(self, call: Call, params: Params) -> str | None:
        """Say what is wrong with the headers of a request, if anything is."""
        if not self.key:
            return None
        if self.role != "context" and any(params.get(name) is not None for name in _SIGNED):
            signed = {name: _text(params.get(name)) for name in _SIGNED}
            if not self._matches(call.received.header(AUTH_HEADER), signed):
                return f"{AUTH_HEADER} is missing or wrong"
        return self._subagent_problem(call, params)

    def sign(self, payload: Mapping[str, object]) -> str:
        """Sign a payload: the hexadecimal HMAC-SHA256 of its compact JSON with sorted keys."""
        raw = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
        return _PREFIX + hmac.new(self.key.encode(), raw, hashlib.sha256).hexdigest()

    def _subagent_problem(self, call: Call, params: Params) -> str | None:
        given = call.received.header(SUBAGENT_HEADER)
        signature = call.received.header(SUBAGENT_AUTH_HEADER)
        if given is None and signature is None:
            return None
        conversation = call.body.get("conversation_params")
        payload = {
            "purpose": SUBAGENT_HEADER,
            "role": self.role.upper(),
            "model": call.body.get("model"),
            "conversation_id": conversation.get("conversation_id") if isinstance(conversation, dict) else None,
            "subagent_affinity_id": given,
            "request_type": params.get("request_type"),
            "disagg_request_id": params.get("disagg_request_id"),
        }
        return None if self._matches(signature, payload) else f"{SUBAGENT_AUTH_HEADER} is missing or wrong"

    def _matches(self, signature: str | None, payload: Mapping[str, object]) -> bool:
        return signature is not None and hmac.compare_digest(signature.encode(), self.sign(payload).encode())


def _text(value: object) -> object:
    return value[0] if isinstance(value, list) and value else value
