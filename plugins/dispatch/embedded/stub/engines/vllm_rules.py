"""The rules of vLLM between and beyond the types of a request's fields."""

from collections.abc import Iterator, Mapping
from typing import Any

from plugins.dispatch.embedded.stub import apis
from plugins.dispatch.embedded.stub.engines.prompts import Prompt
from plugins.dispatch.embedded.stub.engines.vllm_fields import LIMITS
from plugins.dispatch.embedded.stub.engines.vllm_params import Version, wants_decode
from plugins.dispatch.embedded.stub.fields import is_token_ids

Body = Mapping[str, Any]

_TEXTS = frozenset(("text", "input_text", "output_text"))
_PROMPT_IDS = "kv_transfer_params.prompt_token_ids"


class Fault(Exception):
    """A request that the engine declines, and the field that is to blame."""

    def __init__(self, message: str, param: str | None) -> None:
        super().__init__(message)
        self.param = param


def broken_rule(body: Body, api: str, version: Version, longest: int) -> None:
    """Raise `Fault` for a body whose fields are well formed by themselves and do not go together."""
    if body.get("stream_options") is not None and body.get("stream") is not True:
        raise Fault("Stream options can only be defined when `stream=True`.", "stream_options")
    name = next((name for name in LIMITS[api] if body.get(name) is not None), None)
    limit = None if name is None else int(body[name])
    if limit is not None and limit > longest:
        message = f"{name}={limit} cannot be greater than max_model_len={longest}. Please request fewer output tokens."
        raise Fault(f"{message} (parameter={name}, value={limit})", name)
    least = body.get("min_tokens")
    if least is not None and limit is not None and limit >= 1 and least > limit:
        raise Fault(f"min_tokens must be less than or equal to max_tokens={limit}, got {least}.", "min_tokens")
    if any(_foreign_parts(body)):
        raise Fault(f"{body.get('model')} is not a multimodal model", None)
    if api == apis.MESSAGES:
        _check_thinking(body, limit, relayed=version >= (0, 33) and wants_decode(body))


def given_prompt(body: Body) -> Prompt | None:
    """Take the token ids that the prefill worker has made; raise `Fault` if they are none."""
    params = body.get("kv_transfer_params")
    if not isinstance(params, dict) or "prompt_token_ids" not in params or body.get("echo"):
        return None
    if any(not isinstance(message.get("content"), str | None) for message in body["messages"]):
        return None
    given = params["prompt_token_ids"]
    if not is_token_ids(given) or not given:
        raise Fault(f"{_PROMPT_IDS} must be a non-empty list of token ids", _PROMPT_IDS)
    return tuple(given)


def _check_thinking(body: Body, limit: int | None, *, relayed: bool) -> None:
    thinking = body.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if isinstance(budget, int) and limit is not None and budget >= limit and not relayed:
        raise Fault("thinking.budget_tokens must be less than max_tokens", "thinking")


def _foreign_parts(body: Body) -> Iterator[bool]:
    """Yield whether each part of each message is something that is no text."""
    for message in body.get("messages") or ():
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            yield isinstance(part, dict) and "image" in str(part.get("type")) and part.get("type") not in _TEXTS
