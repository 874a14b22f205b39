"""The rules between the request fields of TensorRT-LLM's endpoints."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from plugins.dispatch.embedded.stub import apis
from plugins.dispatch.embedded.stub.fields import Problem


def rule_problems(body: Mapping[str, object], api: str) -> Iterator[Problem]:
    """Yield what is wrong between the fields of a body whose fields are well formed by themselves."""
    for text in _RULES[api](body):
        yield Problem("value_error", ("body",), f"Value error, {text}", dict(body))


def _completion_rules(body: Mapping[str, object]) -> Iterator[str]:
    if body.get("stream_options") and not body.get("stream"):
        yield "stream_options needs stream to be true"
    if body.get("suffix"):
        yield "suffix is not supported"


def _chat_rules(body: Mapping[str, object]) -> Iterator[str]:
    messages = body.get("messages")
    messages = messages if isinstance(messages, list) else []
    if body.get("stream_options") is not None and not body.get("stream"):
        yield "stream_options needs stream to be true"
    declared = any(message.get("role") == "system" and message.get("tools") for message in messages)
    choice = body.get("tool_choice", "none")
    if choice not in ("none", "auto") and not (body.get("tools") or (choice == "required" and declared)):
        yield "tool_choice needs tools"
    if any(message.get("tools") is not None and message.get("role") != "system" for message in messages):
        yield "tools of a message are only allowed on a system message"
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        yield "top_logprobs needs logprobs to be true"
    salt = body.get("cache_salt")
    if isinstance(salt, str) and not salt.strip():
        yield "cache_salt must not be blank"


def _response_rules(body: Mapping[str, object]) -> Iterator[str]:
    if body.get("prompt") is not None:
        yield "prompt templates are not supported"
    if body.get("background") and body.get("store") is False:
        yield "background needs store to be true"


_RULES: Final[Mapping[str, Callable[[Mapping[str, object]], Iterator[str]]]] = {
    apis.COMPLETIONS: _completion_rules,
    apis.CHAT: _chat_rules,
    apis.RESPONSES: _response_rules,
}
