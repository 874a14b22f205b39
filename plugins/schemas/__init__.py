"""What a request's body may be, endpoint by endpoint; fields that an API does not define pass."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kernel import Endpoint
from plugins.endpoints import (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    COUNT_TOKENS,
    MESSAGES,
    NAMELESS,
    RELAYED,
    RESPONSES,
)
from plugins.schemas.anthropic import check_count, check_messages
from plugins.schemas.kinds import check_model
from plugins.schemas.openai import check_chat, check_completion
from plugins.schemas.responses import check_responses

BodyCheck = Callable[[Mapping[str, Any]], None]


def check_named(data: Mapping[str, Any]) -> None:
    """Check a relayed request whose client may leave out the model's name; the rest is the worker's to judge.

    Raises:
        InvalidRequest: 400, the model is not a name.
    """
    if data.get("model") is not None:
        check_model(data)


CHECKS: Final[Mapping[Endpoint, BodyCheck]] = {
    **dict.fromkeys(RELAYED, check_model),
    **dict.fromkeys(NAMELESS, check_named),
    COMPLETIONS: check_completion,
    CHAT_COMPLETIONS: check_chat,
    RESPONSES: check_responses,
    MESSAGES: check_messages,
    COUNT_TOKENS: check_count,
}
"""The check of each endpoint that takes a body; it raises `InvalidRequest` that names the field."""
