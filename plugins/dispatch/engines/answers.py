"""What the answers of all APIs have in common: how each of them says that, and why, it has ended."""

from collections.abc import Mapping
from typing import Any, Final

_REASONS: Final[Mapping[object, str]] = {
    "max_tokens": "length",
    "incomplete": "length",
    "completed": "stop",
    "failed": "error",
    "cancelled": "abort",
}
"""The words of the messages and Responses APIs in those of completions and chat, where they differ."""

_GIVEN_UP: Final = ("abort", "error")


def endings(data: Mapping[str, Any]) -> list[str]:
    """Why a whole answer has ended, in the words of completions and chat: once, or for each of its choices."""
    choices = data.get("choices")
    names = ("finish_reason", "stop_reason" if data.get("type") == "message" else "status")
    found = []
    for part in (data, *choices) if type(choices) is list else (data,):
        for name in names if type(part) is dict else ():
            if name in part:
                reason = part[name]
                reason = reason.get("type") if type(reason) is dict else reason  # SGLang's own API
                if type(reason) is str:
                    found.append(_REASONS.get(reason, reason))
    return found


def gave_up(data: Mapping[str, Any]) -> str | None:
    """Why a whole answer is none although its status says that it is."""
    for reason in endings(data):
        if reason in _GIVEN_UP:
            return reason
    return None


def parts_of(data: dict[str, Any], wraps: tuple[str, ...] = ("response", "message")) -> list[dict[str, Any]]:
    """An answer or an event, what it wraps up, and each choice; answers of some APIs have none."""
    parts = [data, *map(data.get, wraps)]
    choices = data.get("choices")
    if type(choices) is list:
        parts += choices
    return [part for part in parts if type(part) is dict]
