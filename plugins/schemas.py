"""What the fields of a request may be, for the fields that the API defines and workers agree on."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from plugins.slots import InvalidRequest

ID_LIMIT: Final = 1024

Check = Callable[[Any], str | None]
"""Says what was expected when a value is wrong, else None."""


def _kind(*kinds: type, expected: str) -> Check:
    def check(value: Any) -> str | None:
        return None if value is None or value.__class__ in kinds else expected

    return check


def _integer(low: int = -(2**63)) -> Check:
    least = "" if low < 0 else f" of at least {low}"
    expected = f"an integer{least} that fits into 64 bits"

    def check(value: Any) -> str | None:
        if value is None or (value.__class__ is int and low <= value < 2**63):
            return None
        return expected

    return check


def _logprobs(value: Any) -> str | None:
    """Of completions: a number, that llama.cpp also takes as a boolean."""
    return None if value.__class__ is bool else _INTEGER(value)


def _all(kind: type, items: list[Any]) -> bool:
    """Whether every item is of exactly this kind; prompts may have millions."""
    return not set(map(type, items)) - {kind}


def _stop(value: Any) -> str | None:
    if value is None or value.__class__ is str or (value.__class__ is list and _all(str, value)):
        return None
    return "a string or an array of strings"


def _tools(value: Any) -> str | None:
    return None if value is None or (value.__class__ is list and _all(dict, value)) else "an array of objects"


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
    if value.__class__ is str:
        return None
    if value.__class__ is list and value:
        if _all(str, value) or _all(int, value):
            return None
        if _all(list, value) and all(tokens and _all(int, tokens) for tokens in value):
            return None
    return "a string, or a non-empty array of strings, of token ids, or of arrays of token ids"


def _conversation(value: Any) -> str | None:
    if value is None:
        return None
    if value.__class__ is dict and value.get("conversation_id").__class__ in (str, int):
        text = str(value["conversation_id"]).strip()
        if text and len(text) <= ID_LIMIT:
            return None
    return f"an object whose conversation_id is not blank and has at most {ID_LIMIT} characters"


_INTEGER: Final = _integer()
_NUMBER: Final = _kind(int, float, expected="a number")
_BOOLEAN: Final = _kind(bool, expected="a boolean")
_STRING: Final = _kind(str, expected="a string")
_OBJECT: Final = _kind(dict, expected="an object")

_COMMON: Final[dict[str, Check]] = {
    "conversation_params": _conversation,
    "frequency_penalty": _NUMBER,
    "logit_bias": _OBJECT,
    "max_tokens": _INTEGER,
    "min_p": _NUMBER,
    "n": _integer(1),
    "presence_penalty": _NUMBER,
    "response_format": _OBJECT,
    "seed": _INTEGER,
    "stop": _stop,
    "stream": _BOOLEAN,
    "stream_options": _OBJECT,
    "temperature": _NUMBER,
    "top_k": _INTEGER,
    "top_p": _NUMBER,
    "user": _STRING,
}
_COMPLETION: Final[dict[str, Check]] = _COMMON | {
    "best_of": _integer(1),
    "echo": _BOOLEAN,
    "logprobs": _logprobs,
    "prompt": _prompt,
    "suffix": _STRING,
}
_CHAT: Final[dict[str, Check]] = _COMMON | {
    "chat_template_kwargs": _OBJECT,
    "logprobs": _BOOLEAN,
    "max_completion_tokens": _INTEGER,
    "messages": _messages,
    "parallel_tool_calls": _BOOLEAN,
    "tool_choice": _kind(str, dict, expected="a string or an object"),
    "tools": _tools,
    "top_logprobs": _integer(0),
}


def check_completion(data: Mapping[str, Any]) -> None:
    """Check a request to `/v1/completions`.

    Raises:
        InvalidRequest: 400, naming the field.
    """
    _check(data, _COMPLETION, "prompt")


def check_chat(data: Mapping[str, Any]) -> None:
    """Check a request to `/v1/chat/completions`.

    Raises:
        InvalidRequest: 400, naming the field.
    """
    _check(data, _CHAT, "messages")


def _check(data: Mapping[str, Any], checks: Mapping[str, Check], required: str) -> None:
    model = data.get("model")
    if model is None:
        _refuse("model", "missing required field 'model'", "missing_required_field")
    if model.__class__ is not str or not model:
        _refuse("model", "'model' must be a non-empty string", "invalid_type")
    if data.get(required) is None:
        _refuse(required, f"missing required field {required!r}", "missing_required_field")
    for name, value in data.items():
        check = checks.get(name)
        if check is not None:
            expected = check(value)
            if expected is not None:
                _refuse(name, f"{name!r} must be {expected}", "invalid_type")
    if data.get("stream_options") is not None and not data.get("stream"):
        _refuse("stream_options", "'stream_options' is only allowed together with 'stream': true", "invalid_value")


def _refuse(param: str, message: str, code: str) -> NoReturn:
    raise InvalidRequest(400, message, code, param=param)
