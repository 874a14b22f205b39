"""What the fields of completions and chat completions may be, where OpenAI defines them and workers agree."""

from collections.abc import Mapping
from typing import Any, Final

from plugins.schemas.kinds import (
    BOOLEAN,
    CHOICE,
    CONVERSATION,
    INTEGER,
    NATURAL,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRING,
    Rule,
    all_are,
    check_fields,
    integer,
    refuse,
    rule,
)


def _stop(value: Any) -> str | None:
    return None if value.__class__ is list and all_are(str, value) else "a string or an array of strings"


def _messages(value: Any) -> str | None:
    if value.__class__ is not list or not value:
        return "a non-empty array of messages"
    for message in value:
        if message.__class__ is not dict or message.get("role").__class__ is not str:
            return "an array of objects that have a role"
        content = message.get("content")
        if content is None or content.__class__ is str:
            continue
        if content.__class__ is not list:
            return "an array of messages whose content is a string, an array of parts, or null"
        if set(map(type, content)) - {dict, str}:
            return "an array of messages whose content parts are objects"
    return None


def _prompt(value: Any) -> str | None:
    if value.__class__ is list and value:
        if all_are(str, value) or all_are(int, value):
            return None
        if all_are(list, value) and all(tokens and all_are(int, tokens) for tokens in value):
            return None
    return "a string, or a non-empty array of strings, of token ids, or of arrays of token ids"


_COMMON: Final[dict[str, Rule]] = {
    "conversation_params": CONVERSATION,
    "frequency_penalty": NUMBER,
    "logit_bias": OBJECT,
    "max_tokens": INTEGER,
    "min_p": NUMBER,
    "n": integer(1),
    "presence_penalty": NUMBER,
    "response_format": OBJECT,
    "seed": INTEGER,
    "stop": rule(_stop, type(None), str),
    "stream": BOOLEAN,
    "stream_options": OBJECT,
    "temperature": NUMBER,
    "top_k": INTEGER,
    "top_p": NUMBER,
    "user": STRING,
}
_COMPLETION: Final[dict[str, Rule]] = _COMMON | {
    "best_of": integer(1),
    "echo": BOOLEAN,
    "logprobs": rule(INTEGER[1], type(None), bool),  # a number, that llama.cpp also takes as a boolean
    "prompt": rule(_prompt, str),
    "suffix": STRING,
}
_CHAT: Final[dict[str, Rule]] = _COMMON | {
    "chat_template_kwargs": OBJECT,
    "logprobs": BOOLEAN,
    "max_completion_tokens": INTEGER,
    "messages": rule(_messages),
    "parallel_tool_calls": BOOLEAN,
    "tool_choice": CHOICE,
    "tools": OBJECTS,
    "top_logprobs": NATURAL,
}


def check_completion(data: Mapping[str, Any]) -> None:
    """Check a request to `/v1/completions`.

    Raises:
        InvalidRequest: 400, naming the field.
    """
    check_fields(data, _COMPLETION, "prompt")
    if "stream_options" in data:
        _check_stream_options(data)


def check_chat(data: Mapping[str, Any]) -> None:
    """Check a request to `/v1/chat/completions`.

    Raises:
        InvalidRequest: 400, naming the field.
    """
    check_fields(data, _CHAT, "messages")
    if "stream_options" in data:
        _check_stream_options(data)


def _check_stream_options(data: Mapping[str, Any]) -> None:
    if data["stream_options"] is not None and not data.get("stream"):
        refuse("stream_options", "'stream_options' is only allowed together with 'stream': true", "invalid_value")
