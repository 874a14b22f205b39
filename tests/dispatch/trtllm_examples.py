"""A request to TensorRT-LLM's workers, and a context worker's answer to it, for tests of the engine."""

from typing import Any

import orjson

from kernel import Endpoint
from plugins.dispatch.engine import Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import Conversation, Payload

CHAT = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hello"}],
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 7,
}

USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}

PARAMS = {
    "request_type": "context_only",
    "first_gen_tokens": [9],
    "ctx_request_id": 2**63 + 5,
    "disagg_request_id": 2**62 + 1,
    "encoded_opaque_state": "//79",
    "draft_tokens": None,
    "ctx_info_endpoint": "tcp://10.0.0.5:1",
    "remote_tail_start": 4,
}


def request_of(
    data: dict[str, Any], endpoint: Endpoint = CHAT_COMPLETIONS, conversation: Conversation | None = None
) -> Request:
    """A request with this body."""
    return Request(endpoint, Payload(b"", data), bool(data.get("stream")), conversation)


def context_answer(chat: bool = True, **fields: Any) -> dict[str, Any]:
    """A context worker's answer that waits for a generation worker."""
    said = {"message": {"role": "assistant", "content": "A"}} if chat else {"text": "A"}
    choice = {"index": 0, **said, "finish_reason": "length", "disaggregated_params": PARAMS}
    return {"id": "x", "choices": [choice], "usage": USAGE, "prompt_token_ids": [1, 2, 3], **fields}


def read(answer: Any, endpoint: Endpoint = CHAT_COMPLETIONS) -> Any:
    """What the engine reads from a context worker's answer."""
    raw = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    return TrtllmEngine().read(Role.CONTEXT, request_of(CHAT, endpoint), raw)


def without(**params: Any) -> dict[str, Any]:
    """An answer whose handoff has these fields instead."""
    answer = context_answer()
    answer["choices"][0]["disaggregated_params"] = {**PARAMS, **params}
    return answer
