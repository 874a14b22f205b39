"""A whole chat completion as a message: its blocks, why it ended, and what it used."""

import random
from collections.abc import Container
from hashlib import sha256
from typing import Any, Final

import orjson

from plugins.messages.refusals import Data
from plugins.slots import WorkerRejection

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
    try:
        data = orjson.loads(body)
        choice = data["choices"][0]
        said = choice["message"]
        blocks = _blocks(said, cut=choice.get("finish_reason") == "length")
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        raise malformed("the worker's answer is no chat completion") from None
    reason, stop = stop_of(choice, stops, tools=any(block["type"] == "tool_use" for block in blocks))
    head = message_head(model, usage_of(data.get("usage")))
    return head | {"content": blocks, "stop_reason": reason, "stop_sequence": stop}


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
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = _number(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return {
        "input_tokens": max(_number(usage.get("prompt_tokens")) - cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": _number(usage.get("completion_tokens")) if output else 0,
    }


def reasoning_of(said: Data) -> str:
    """What a worker thought aloud; the field has two names, and some workers fill both."""
    return said.get("reasoning_content") or said.get("reasoning") or ""


def sign(thinking: str) -> str:
    """A signature of the form that clients expect; workers need none, and nobody checks it."""
    return sha256(thinking.encode()).hexdigest()


def new_id(prefix: str) -> str:
    """A new id in Anthropic's manner."""
    return f"{prefix}{random.getrandbits(96):024x}"  # a name and no secret


def malformed(message: str) -> WorkerRejection:
    """What is said of a worker's answer that cannot be understood."""
    return WorkerRejection(502, message, "worker_error")


def _blocks(said: Data, *, cut: bool) -> list[Data]:
    blocks: list[Data] = []
    if thinking := reasoning_of(said):
        blocks.append({"type": "thinking", "thinking": thinking, "signature": sign(thinking)})
    if text := said.get("content"):
        if not isinstance(text, str):
            raise malformed("the worker's answer has content that is no text")
        blocks.append({"type": "text", "text": text})
    seen: set[str] = set()
    for call in said.get("tool_calls") or ():
        given = _input(call["function"].get("arguments"), cut=cut)
        if given is not None:
            name = call["function"]["name"]
            blocks.append({"type": "tool_use", "id": call_id(call.get("id"), seen), "name": name, "input": given})
    return blocks or [{"type": "text", "text": ""}]


def call_id(given: Any, seen: set[str]) -> str:
    """The id of a tool call: the worker's own, as templates may want it back, unless there is none or it repeats."""
    name = given if isinstance(given, str) and given and given not in seen else new_id("toolu_")
    seen.add(name)
    return name


def _input(arguments: Any, *, cut: bool) -> Data | None:
    """What a tool is called with; None for a call that the limit of tokens cut, which must not be run."""
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments) if arguments.strip() else {}
        except orjson.JSONDecodeError:
            arguments = None
    if isinstance(arguments, dict):
        return arguments
    if cut:
        return None
    raise malformed("the worker called a tool with arguments that are no JSON object")


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
