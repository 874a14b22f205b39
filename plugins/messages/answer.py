"""A whole chat completion as a message: its blocks, why it ended, and what it used."""

from collections.abc import Container
from hashlib import sha256
from typing import Any, Final

import orjson

from plugins.chat.answer import Answer, cached_of, call_id, malformed, new_id, read_answer
from plugins.chat.reading import Data

_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def message_from(body: bytes, model: str, stops: Container[str]) -> Data:
    """The message that a chat completion is; `model` is the client's name for it, `stops` its stop sequences.

    Raises:
        WorkerRejection: 502, it is no chat completion, or the worker did not end it by itself.
    """
    answer = read_answer(body)
    reason, stop = stop_of(answer.choice, stops, tools=bool(answer.calls))
    head = message_head(model, usage_of(answer.usage))
    return head | {"content": _blocks(answer), "stop_reason": reason, "stop_sequence": stop}


def message_head(model: str, usage: Data) -> Data:
    """A message that nothing was said in yet, as a stream starts with it."""
    return {
        "id": new_id("msg_"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def stop_of(choice: Data, stops: Container[str], *, tools: bool) -> tuple[str, str | None]:
    """Why it ended and the stop sequence that ended it, where a worker tells.

    Raises:
        WorkerRejection: 502, it has not ended, or in a way that is no end of an answer.
    """
    finish = choice.get("finish_reason")
    reason = _REASONS.get(finish) if isinstance(finish, str) else None
    if reason is None:
        raise malformed("the worker did not bring the answer to an end")
    if tools and reason != "max_tokens":
        return "tool_use", None
    matched = choice.get("stop_reason")
    if not isinstance(matched, str):
        matched = choice.get("matched_stop")  # SGLang's name for it; both give numbers for tokens
    if reason == "end_turn" and isinstance(matched, str) and matched in stops:
        return "stop_sequence", matched
    return reason, None


def usage_of(usage: Any, *, output: bool = True) -> Data:
    """Anthropic's count of tokens: those read from a cache are not among the input's."""
    prompt, cached, completion = cached_of(usage)
    return {
        "input_tokens": max(prompt - cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": completion if output else 0,
    }


def _blocks(answer: Answer) -> list[Data]:
    blocks: list[Data] = []
    if answer.thinking:
        # clients send none back without a signature; workers need none, and nobody checks it
        signature = sha256(answer.thinking.encode()).hexdigest()
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": signature})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    seen: set[str] = set()
    for call in answer.calls:
        given = call_id(call.given, seen, "toolu_")
        blocks.append({"type": "tool_use", "id": given, "name": call.name, "input": orjson.loads(call.arguments)})
    return blocks or [{"type": "text", "text": ""}]
