"""A whole chat completion as a response: its items, how it ended, and what it used."""

from collections.abc import Mapping
from time import time
from typing import Any, Final

from plugins.chat.answer import cached_of, call_id, malformed, new_id, read_answer
from plugins.chat.reading import Data

Namespaces = Mapping[str, tuple[str, str]]
"""For the chat name of a tool, its namespace and its name there."""

_ECHOED: Final = (
    "instructions", "max_output_tokens", "max_tool_calls", "temperature", "top_p", "user", "prompt_cache_key",
    "safety_identifier",
)  # fmt: skip
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
_COMPLETE: Final = frozenset(("stop", "tool_calls", "function_call"))


def response_from(body: bytes, request: Data, model: str, namespaces: Namespaces) -> Data:
    """The response that a chat completion is; `model` is the client's name for it.

    Raises:
        WorkerRejection: 502, it is no chat completion, or the worker did not end it by itself.
    """
    answer = read_answer(body)
    ends = ends_of(answer.choice)
    status = ends["status"]
    output: list[Data] = []
    if answer.thinking:
        output.append(reasoning_item(new_id("rs_"), "completed", answer.thinking))
    if answer.text:
        output.append(message_item(new_id("msg_"), status, answer.text))
    seen: set[str] = set()
    for call in answer.calls:
        given = call_id(call.given, seen, "call_")
        output.append(call_item(new_id("fc_"), "completed", given, named(call.name, namespaces), call.arguments))
    return response_head(request, model) | ends | {"output": output, "usage": usage_of(answer.usage)}


def response_head(request: Data, model: str) -> Data:
    """A response that nothing was said in yet, with what the request said of it."""
    reasoning = request.get("reasoning") or {}
    text = request.get("text") or {}
    return {
        "id": new_id("resp_"), "object": "response", "created_at": int(time()), "status": "in_progress",
        "error": None, "incomplete_details": None, "model": model, "output": [], "usage": None,
        **{name: request.get(name) for name in _ECHOED},
        "background": False, "previous_response_id": None, "store": False, "truncation": "disabled",
        "metadata": request.get("metadata") or {},
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "text": text if text.get("format") else {**text, "format": {"type": "text"}},
        "tool_choice": request.get("tool_choice") or "auto", "tools": request.get("tools") or [],
    }  # fmt: skip


def ends_of(choice: Data) -> Data:
    """The fields of a response that has ended.

    Raises:
        WorkerRejection: 502, it has not ended, or in a way that is no end of an answer.
    """
    finish = choice.get("finish_reason")
    if finish in _COMPLETE:
        return {"status": "completed", "incomplete_details": None}
    if finish in _INCOMPLETE:
        return {"status": "incomplete", "incomplete_details": {"reason": _INCOMPLETE[finish]}}
    raise malformed("the worker did not bring the answer to an end")


def usage_of(usage: Any) -> Data | None:
    """The tokens, if the worker told them; those from a cache are among the input's."""
    if not isinstance(usage, dict):
        return None
    prompt, cached, completion = cached_of(usage)
    details = usage.get("completion_tokens_details")
    thought = details.get("reasoning_tokens") if isinstance(details, dict) else usage.get("reasoning_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": thought if isinstance(thought, int) else 0},
        "total_tokens": prompt + completion,
    }


def named(name: str, namespaces: Namespaces) -> Data:
    """A tool's name as the client knows it."""
    space, own = namespaces.get(name, (None, name))
    return {"name": own} if space is None else {"name": own, "namespace": space}


def message_item(given: str, status: str, text: str | None) -> Data:
    """A message; without text nothing is said in it yet."""
    content = [] if text is None else [text_part(text)]
    return {"id": given, "type": "message", "role": "assistant", "status": status, "content": content}


def text_part(text: str) -> Data:
    """What is said."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reasoning_item(given: str, status: str, text: str | None) -> Data:
    """What was thought; the summary is empty, as workers tell the whole."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {
        "id": given, "type": "reasoning", "status": status, "summary": [], "content": content,
        "encrypted_content": None,
    }  # fmt: skip


def call_item(given: str, status: str, call: str, name: Data, arguments: str) -> Data:
    """A tool call; `call` is the id that its output is to name."""
    return {"id": given, "type": "function_call", "status": status, "call_id": call, "arguments": arguments, **name}
