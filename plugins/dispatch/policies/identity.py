"""What a request is known by: its conversation, its user, or how its prompt begins."""

from collections.abc import Mapping
from typing import Any, Final

from plugins.dispatch.prompt import Prompt, pieces
from plugins.slots import Conversation

_KEY_LIMIT: Final = 4096
_FIRST_CHARACTERS: Final = 1024
_FIRST_TOKENS: Final = 256
_FIRST_MESSAGES: Final = 8


def identity_of(conversation: Conversation | None) -> str | None:
    """The conversation that a request is routed by: a sub-agent goes where its parent is."""
    if conversation is None:
        return None
    return conversation.subagent_affinity or conversation.id


def user_of(data: Mapping[str, Any]) -> str | None:
    """The user that a request names, in one of the APIs' fields."""
    metadata = data.get("metadata")
    for value in (data.get("user"), metadata.get("user_id") if isinstance(metadata, dict) else None):
        if isinstance(value, str) and value:
            return value[:_KEY_LIMIT]
    return None


def opening_of(prompt: Prompt) -> str | None:
    """How a prompt begins: with what all later requests of the same conversation begin as well.

    That is everything up to the first message of the user; of a bare prompt, its first part.
    """
    data, ids = prompt.data, prompt.ids
    if ids is not None and "messages" not in data:
        return str(ids[:_FIRST_TOKENS])
    for name in ("messages", "input"):
        messages = data.get(name)
        if isinstance(messages, list):
            opening = {name: messages[: _first_of_user(messages)]}
            for key in ("system", "instructions"):
                if key in data:
                    opening[key] = data[key]
            return "".join([piece[:_KEY_LIMIT] for piece in pieces(opening)]) or None
    return prompt.text(_FIRST_CHARACTERS) or None


def _first_of_user(messages: list[Any]) -> int:
    """The place behind the first message of the user."""
    for place, message in enumerate(messages[:_FIRST_MESSAGES], 1):
        if isinstance(message, dict) and message.get("role") == "user":
            return place
    return _FIRST_MESSAGES
