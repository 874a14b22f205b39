"""What the fields of Anthropic's Messages API may be, where workers agree."""

from collections.abc import Mapping
from typing import Any, Final

from plugins.schemas.kinds import (
    BOOLEAN,
    CONVERSATION,
    INTEGER,
    NATURAL,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRINGS,
    Rule,
    all_are,
    check_fields,
    rule,
)


def _messages(value: Any) -> str | None:
    """Roles are not looked at: Claude Code has system turns in its messages."""
    if value.__class__ is not list or not value:
        return "a non-empty array of messages"
    for message in value:
        if message.__class__ is not dict or message.get("role").__class__ is not str:
            return "an array of objects that have a role"
        if not _is_content(message.get("content")):
            return "an array of messages whose content is a string or an array of blocks"
    return None


def _system(value: Any) -> str | None:
    return None if _is_content(value) else "a string or an array of blocks"


def _is_content(value: Any) -> bool:
    return value.__class__ is str or (value.__class__ is list and all_are(dict, value))


_PROMPT: Final[dict[str, Rule]] = {
    "conversation_params": CONVERSATION,
    "messages": rule(_messages),
    "system": rule(_system, type(None)),
    "thinking": OBJECT,
    "tool_choice": OBJECT,
    "tools": OBJECTS,
}
_MESSAGES: Final[dict[str, Rule]] = _PROMPT | {
    "max_tokens": NATURAL,
    "metadata": OBJECT,
    "stop_sequences": STRINGS,
    "stream": BOOLEAN,
    "temperature": NUMBER,
    "top_k": INTEGER,
    "top_p": NUMBER,
}


def check_messages(data: Mapping[str, Any]) -> None:
    """Check a request to `/v1/messages`.

    Raises:
        InvalidRequest: 400, naming the field.
    """
    check_fields(data, _MESSAGES, "messages", "max_tokens")


def check_count(data: Mapping[str, Any]) -> None:
    """Check a request to `/v1/messages/count_tokens`.

    Raises:
        InvalidRequest: 400, naming the field.
    """
    check_fields(data, _PROMPT, "messages")
