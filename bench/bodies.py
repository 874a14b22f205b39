"""The requests that are sent and the answers that come back, byte for byte."""

from typing import Any, Final

import orjson

PATH: Final = "/v1/chat/completions"

ONE: Final = "one"
"""The model that one worker serves."""

TWO: Final = "two"
"""The model with a worker for each phase."""

DONE: Final = b"data: [DONE]\n\n"

ANSWER_BYTES: Final = 500

STATE: Final = "c3RhdGUgb2YgdGhlIGNvbnRleHQgcGhhc2U" * 4
"""Stands for the opaque state that a generation worker needs."""

_PROMPT_TOKENS: Final = [1000 + index * 37 for index in range(64)]


def make_request(model: str, size: int, *, stream: bool) -> bytes:
    """The body of a request to chat completions, of exactly `size` bytes."""

    def encode(content: str) -> bytes:
        message = {"role": "user", "content": content}
        return orjson.dumps({"model": model, "messages": [message], "max_tokens": 64, "stream": stream})

    missing = size - len(encode(""))
    if missing < 1:
        raise ValueError(f"a request has at least {size - missing + 1} bytes, not {size}")
    return encode("x" * missing)


def make_event() -> bytes:
    """The event of one token."""
    choice = {"index": 0, "delta": {"content": " token"}, "logprobs": None, "finish_reason": None}
    return b"data: " + orjson.dumps({**_head("chat.completion.chunk"), "choices": [choice]}) + b"\n\n"


def make_stream(tokens: int) -> bytes:
    """All of a stream."""
    return make_event() * tokens + DONE


def make_answer() -> bytes:
    """A whole answer of `ANSWER_BYTES`, also of a generation worker: its fields for a handoff are null."""
    bare = _whole("", "stop", disaggregated_params=None)
    return _whole("x" * (ANSWER_BYTES - len(bare)), "stop", disaggregated_params=None)


def make_context_answer() -> bytes:
    """A context worker's answer, with a handoff."""
    handoff = {
        "request_type": "context_only",
        "first_gen_tokens": [29],
        "ctx_request_id": 2**40 + 1,
        "disagg_request_id": 2**40 + 1,
        "encoded_opaque_state": STATE,
        "draft_tokens": None,
        "ctx_dp_rank": 0,
        "ctx_info_endpoint": "127.0.0.1:1",
    }
    return _whole(" token", "length", {"prompt_token_ids": _PROMPT_TOKENS}, disaggregated_params=handoff)


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-0123456789abcdef", "object": kind, "created": 1_700_000_000, "model": "model"}


def _whole(content: str, reason: str, more: dict[str, Any] | None = None, **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason, **fields}
    usage = {"prompt_tokens": 64, "completion_tokens": 1, "total_tokens": 65}
    return orjson.dumps({**_head("chat.completion"), "choices": [choice], "usage": usage, **(more or {})})
