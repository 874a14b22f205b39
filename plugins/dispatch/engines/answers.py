"""What the answers of all APIs have in common: how each of them says that, and why, it has ended."""

from collections.abc import Iterator, Mapping
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


def endings(data: Mapping[str, Any]) -> Iterator[str]:
    """Why a whole answer has ended, in the words of completions and chat: once, or for each of its choices."""
    for part in (data, *choices_of(data)):
        for name in ("finish_reason", "stop_reason" if data.get("type") == "message" else "status"):
            reason = part.get(name)
            reason = reason.get("type") if isinstance(reason, dict) else reason  # SGLang's own API
            if isinstance(reason, str):
                yield _REASONS.get(reason, reason)


def gave_up(data: Mapping[str, Any]) -> str | None:
    """Why a whole answer is none although its status says that it is."""
    return next((reason for reason in endings(data) if reason in _GIVEN_UP), None)


def choices_of(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The choices of an answer or of an event; answers of other APIs have none."""
    choices = data.get("choices")
    yield from (choice for choice in (choices if isinstance(choices, list) else ()) if isinstance(choice, dict))


def parts_of(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An answer or an event, what it wraps up, and each choice."""
    yield data
    for name in ("response", "message"):
        if isinstance(data.get(name), dict):
            yield data[name]
    yield from choices_of(data)
