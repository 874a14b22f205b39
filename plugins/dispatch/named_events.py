"""A whole answer of the Responses or the messages API as the stream that the client asked for."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

_UNKNOWN: Final[Mapping[str, Any]] = {
    "status": "in_progress",
    "output": [],
    "usage": None,
    "incomplete_details": None,
    "error": None,
}
"""What is known only when a response has ended."""

_LAST: Final = {"incomplete": "response.incomplete", "failed": "response.failed"}


def replay_response(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """Three events, as TensorRT-LLM's frontend has them: the response before anything of it was made, and all of it."""
    opened = {name: _UNKNOWN.get(name, value) for name, value in {**answer, "status": None}.items()}
    last = _LAST.get(answer.get("status", ""), "response.completed")
    events = (("response.created", opened), ("response.in_progress", opened), (last, answer))
    for number, (name, response) in enumerate(events):
        yield _event(name, response=response, sequence_number=number)


def replay_message(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """The message without its content, each of its blocks, and how it ended."""
    usage, ending = answer.get("usage") or {}, {"stop_reason": None, "stop_sequence": None}
    opened = {**answer, "content": [], **ending, "usage": {**usage, "output_tokens": 0}}
    yield _event("message_start", message=opened)
    for index, block in enumerate(answer.get("content") or ()):
        start, deltas = _parts(block)
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta={name: answer.get(name) for name in ending}, usage=usage)
    yield _event("message_stop")


def _parts(block: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """How a block begins, and what is added to it; one of an unknown type begins with all that it is."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {**block, "text": ""}, [{"type": "text_delta", "text": text}]
        case {"type": "thinking", "thinking": str(text)}:
            signature = block.get("signature") or ""
            signed = [{"type": "signature_delta", "signature": signature}] if signature else []
            opened = {**block, "thinking": "", "signature": ""}
            return opened, [{"type": "thinking_delta", "thinking": text}, *signed]
        case {"type": "tool_use"}:
            given = orjson.dumps(block.get("input") or {}).decode()
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": given}]
        case _:
            return block, []


def _event(name: str, **fields: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps({"type": name, **fields}) + b"\n\n"
