"""The APIs that workers answer, and their paths."""

from collections.abc import Mapping
from typing import Final

COMPLETIONS: Final = "completions"
CHAT: Final = "chat"
RESPONSES: Final = "responses"
MESSAGES: Final = "messages"

PATHS: Final[Mapping[str, str]] = {
    "/v1/completions": COMPLETIONS,
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}

LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    COMPLETIONS: ("max_tokens",),
    CHAT: ("max_tokens", "max_completion_tokens"),
    RESPONSES: ("max_output_tokens",),
    MESSAGES: ("max_tokens",),
}
"""The fields that limit an answer; the first one that is there counts."""
