"""What vLLM's context workers are sent: the client's request with one token to be made and nothing to be streamed."""

from collections.abc import Mapping
from typing import Any, Final

from plugins.dispatch.engine import Request
from plugins.dispatch.engines.bodies import count_prompts

_LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "completions": ("max_tokens",),
    "chat_completions": ("max_tokens", "max_completion_tokens"),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
}
_OWN_TOOLS: Final = ("web_search_preview", "code_interpreter", "container", "mcp")
_TEXT: Final = (str, type(None))
_CHOICES: Final = ("completions", "chat_completions")
_DROPPED: Final = frozenset(
    (
        *("stream_options", "min_tokens", "min_completion_tokens"),  # refused beside the fields that are set
        *("best_of", "use_beam_search"),
        *("stop", "stop_token_ids", "stop_sequences"),  # older workers hand over only what ended for its length
    )
)
TELLING: Final = frozenset(
    ("n", "best_of", "use_beam_search", "prompt", "echo", "prompt_logprobs", "thinking", "tools")
)
"""The fields by which a request may be one that cannot be handed over."""


def _forced(api: str) -> dict[str, Any]:
    data = {"stream": False, **dict.fromkeys(_LIMITS.get(api, ("max_tokens",)), 1)}
    if api in _CHOICES:
        data["n"] = 1
    if api != "messages":
        data["ignore_eos"] = True
    if api == "responses":
        data["store"] = False
    return data


_FORCED: Final = {api: _forced(api) for api in _LIMITS}
_FORCED_ELSEWHERE: Final = _forced("")


def context_data(request: Request) -> dict[str, Any]:
    """The client's fields for the context leg; those that change the prompt are all kept."""
    data = {**request.payload.data, **_FORCED.get(request.endpoint.name, _FORCED_ELSEWHERE)}
    if not _DROPPED.isdisjoint(data):
        for name in _DROPPED:
            data.pop(name, None)
    return data


def has_many(data: Mapping[str, Any]) -> bool:
    """Whether a request makes several sequences: only the first one would fetch the KV cache, and free it."""
    return (
        data.get("n") not in (None, 1)
        or data.get("best_of") not in (None, 1)
        or data.get("use_beam_search") is True
        or count_prompts(data.get("prompt")) > 1
    )


def wants_prompt(data: Mapping[str, Any]) -> bool:
    """Whether the answer says of the prompt what only who computes it knows."""
    return bool(data.get("echo")) or data.get("prompt_logprobs") is not None


def thinks(data: Mapping[str, Any]) -> bool:
    """Whether a messages request has a budget for thinking: workers refuse one that a limit of one cannot hold."""
    thinking = data.get("thinking")
    return isinstance(thinking, dict) and thinking.get("budget_tokens") is not None


def uses_tools_itself(data: Mapping[str, Any]) -> bool:
    """Whether the worker may call tools of its own, and then compute further prompts with the same handoff."""
    tools = data.get("tools")
    return any(isinstance(tool, dict) and tool.get("type") in _OWN_TOOLS for tool in tools or ())


def may_reuse(request: Request) -> bool:
    """Whether the generation worker takes the prompt's token ids in place of the messages."""
    messages = request.payload.data.get("messages")
    return (
        request.endpoint.name == "chat_completions"
        and isinstance(messages, list)
        and all(isinstance(item, dict) and type(item.get("content")) in _TEXT for item in messages)
    )
