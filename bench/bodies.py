"""The requests that are sent and the answers that come back, byte for byte, and by which rules workers answer."""

from pathlib import Path
from typing import Any, Final

import orjson

PATH: Final = "/v1/chat/completions"

ONE: Final = "one"
"""The model whose workers do both phases."""

TRTLLM: Final = "trtllm"
VLLM: Final = "vllm"
SGLANG: Final = "sglang"
ENGINES: Final = (TRTLLM, VLLM, SGLANG)
"""The models with workers for each phase, named like what these are."""

DONE: Final = b"data: [DONE]\n\n"

ANSWER_BYTES: Final = 500

STATE: Final = "c3RhdGUgb2YgdGhlIGNvbnRleHQgcGhhc2U" * 4
"""Stands for the opaque state that a generation worker of TensorRT-LLM needs."""

ENGINE_ID: Final = "3f0e5c1a-7d1c-4a52-9b1e-2f6a8c0d4e5f"
"""Stands for the worker of vLLM that has the KV cache."""

_PROMPT_TOKENS: Final = [1000 + index * 37 for index in range(64)]
_MODELS: Final = [{"id": name, "object": "model", "created": 0, "owned_by": "mock"} for name in (ONE, *ENGINES)]
_FACTS: Final[dict[str, Any]] = {
    "/health": {},
    "/v1/models": {"object": "list", "data": _MODELS},
    "/version": {"version": "0.33.0"},
    "/get_model_info": {"model_path": ONE, "tokenizer_path": ONE, "is_generation": True},
    "/model_info": {"model_path": ONE, "tokenizer_path": ONE, "is_generation": True},
    "/get_server_info": {"model_path": ONE, "served_model_name": ONE, "version": "0.5.15", "internal_states": [{}]},
    "/server_info": {"model_path": ONE, "served_model_name": ONE, "version": "0.5.15", "internal_states": [{}]},
    "/abort_request": {},
}
"""What a worker tells of itself to whom asks, and what it says to calls that change nothing here."""


def make_request(model: str, size: int, *, stream: bool, pause: int | None = None) -> bytes:
    """The body of a request to chat completions, of exactly `size` bytes.

    `pause`: microseconds between the tokens of a stream, of those that the rules have; it stands in `seed`, a field
    that no gateway takes out.
    """

    def encode(content: str) -> bytes:
        message = {"role": "user", "content": content}
        more = {} if pause is None else {"seed": pause}
        return orjson.dumps({"model": model, "messages": [message], "max_tokens": 64, "stream": stream, **more})

    missing = size - len(encode(""))
    if missing < 1:
        raise ValueError(f"a request has at least {size - missing + 1} bytes, not {size}")
    return encode("x" * missing)


def make_event(kind: str = "chat.completion.chunk") -> bytes:
    """The event of one token."""
    said: dict[str, Any] = {"delta": {"content": " token"}} if kind.startswith("chat") else {"text": " token"}
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": None}
    return b"data: " + orjson.dumps({**_head(kind), "choices": [choice]}) + b"\n\n"


def make_stream(tokens: int) -> bytes:
    """All of a stream."""
    return make_event() * tokens + DONE


def make_answer() -> bytes:
    """A whole answer of `ANSWER_BYTES`, also of a generation worker: its fields for a handoff are null."""
    bare = _whole("", "stop", _NO_HANDOFF, disaggregated_params=None)
    return _whole("x" * (ANSWER_BYTES - len(bare)), "stop", _NO_HANDOFF, disaggregated_params=None)


def make_context_answer(engine: str) -> bytes:
    """A context worker's answer, with what its engine hands over; those of SGLang meet by themselves."""
    if engine == VLLM:
        return _whole(" token", "length", {"kv_transfer_params": _VLLM_HANDOFF})
    if engine == SGLANG:
        return _whole(" token", "length")
    return _whole(" token", "length", {"prompt_token_ids": _PROMPT_TOKENS}, disaggregated_params=_TRTLLM_HANDOFF)


def write_rules(folder: Path, tokens: int, pauses: tuple[int, ...]) -> Path:
    """Write what the mock worker answers, in files, and by which rules; streams have so many tokens and these pauses.

    A generation request without its handoff is declined, so that a gateway that leaves the relay out is found out.
    """
    lines: list[str] = []

    def add(kind: str, path: str, *words: str | int) -> None:
        lines.append(" ".join(map(str, (kind, path, *words))))

    def write(name: str, content: bytes) -> str:
        place = folder / name
        place.write_bytes(content)
        return str(place)

    whole, event, end = write("answer", make_answer()), write("event", make_event()), write("end", DONE)
    served = [[f'model="{ONE}"']]
    for engine, (asked, handed) in _MARKS.items():
        named = f'model="{engine}"'
        if asked:
            context = write(f"{engine}-context", make_context_answer(engine))
            add("answer", PATH, 200, context, named, asked)
        served.append([named, *handed])
    for conditions in served:
        for pause in pauses:
            add("stream", PATH, pause, tokens, event, end, *conditions, "stream=true", f"seed={pause}")
        add("answer", PATH, 200, whole, *conditions)
    text = write("text-event", make_event("text_completion"))
    for pause in pauses:
        add("stream", "/v1/completions", pause, tokens, text, end, "stream=true", f"seed={pause}")
    add("answer", "/v1/completions", 200, write("text-answer", _text("stop")))
    for path, facts in _FACTS.items():
        add("answer", path, 200, write(path.replace("/", "-"), orjson.dumps(facts)))
    add("answer", "*", 400, write("declined", b'{"message":"no rule fits this request, or it has no handoff"}'))
    rules = folder / "rules"
    rules.write_text("\n".join(lines) + "\n")
    return rules


_NO_HANDOFF: Final[dict[str, Any]] = {"kv_transfer_params": None}

_TRTLLM_HANDOFF: Final = {
    "request_type": "context_only",
    "first_gen_tokens": [29],
    "ctx_request_id": 2**40 + 1,
    "disagg_request_id": 2**40 + 1,
    "encoded_opaque_state": STATE,
    "draft_tokens": None,
    "ctx_dp_rank": 0,
    "ctx_info_endpoint": "127.0.0.1:1",
}

_VLLM_HANDOFF: Final = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[11, 12, 13, 14]],
    "remote_engine_id": ENGINE_ID,
    "remote_request_id": "chatcmpl-0123456789abcdef-a1b2",
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
    "tp_size": 1,
    "remote_num_tokens": 64,
}

_MARKS: Final = {
    TRTLLM: (
        'request_type="context_only"',
        ('request_type="generation_only"', f'encoded_opaque_state="{STATE}"'),
    ),
    VLLM: ("do_remote_decode=true", ("do_remote_prefill=true", f'remote_engine_id="{ENGINE_ID}"')),
    SGLANG: ("", ("bootstrap_room=",)),
}
"""How a context worker knows its request, and a generation worker that it has the handoff; SGLang's get the same."""


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-0123456789abcdef", "object": kind, "created": 1_700_000_000, "model": "model"}


def _whole(content: str, reason: str, more: dict[str, Any] | None = None, **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason, **fields}
    return orjson.dumps({**_head("chat.completion"), "choices": [choice], "usage": _USAGE, **(more or {})})


def _text(reason: str) -> bytes:
    choice = {"index": 0, "text": "x" * 200, "logprobs": None, "finish_reason": reason}
    return orjson.dumps({**_head("text_completion"), "choices": [choice], "usage": _USAGE})


_USAGE: Final = {"prompt_tokens": 64, "completion_tokens": 1, "total_tokens": 65}
