"""The JSON shapes in which errors reach a client."""

import re
from typing import Any, Final

from kernel import Rejection
from plugins.endpoints import ANTHROPIC, Dialect
from plugins.slots import InvalidRequest

INTERNAL: Final = Rejection(500, "internal server error", "internal_error")

TOO_LONG: Final = "context_length_exceeded"
"""OpenAI's code for a prompt that does not fit; clients shorten their conversation when they see it."""

PROMPT_TOO_LONG: Final = "prompt is too long"
"""How Anthropic's message for the same begins, which has no code; clients look for these words."""

_ADDRESS: Final = re.compile(
    r"\b[a-z][a-z0-9+]{1,15}://[^\s'\"<>]+|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])(?::\d{1,5})?|\[[0-9a-fA-F:]{2,45}\]:\d{1,5}"
)
"""What workers tell of each other when a handoff fails."""

_KINDS: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_KINDS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def rejection_of(error: BaseException | None) -> Rejection:
    """What a client may know of an error: a rejection says it itself, a fault stays internal."""
    return error if isinstance(error, Rejection) else INTERNAL


def hide_addresses(text: str) -> str:
    """The text without the addresses of workers."""
    return _ADDRESS.sub("(address)", text)


def status_of(error: Rejection, dialect: Dialect) -> int:
    """The status that an error has in a dialect: in Anthropic's, a prompt that is too long is always a 400."""
    return 400 if dialect == ANTHROPIC and error.code == TOO_LONG else error.status


def openai_error(error: Rejection) -> dict[str, Any]:
    """OpenAI's error object."""
    kind = error.kind or _KINDS.get(error.status)
    if kind is None:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def anthropic_error(error: Rejection, request_id: str) -> dict[str, Any]:
    """Anthropic's error object; its type follows from the status alone, since workers have types of their own."""
    status = status_of(error, ANTHROPIC)
    kind = _ANTHROPIC_KINDS.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": _anthropic_text(error)}, "request_id": request_id}


def trtllm_error(error: Rejection) -> dict[str, Any]:
    """The shapes of TensorRT-LLM's disaggregated frontend; a fault's own text is left out."""
    if isinstance(error, InvalidRequest):
        return {"error": error.message}
    if error.code == TOO_LONG:
        return {
            "object": "error",
            "message": error.message,
            "type": "BadRequestError",
            "param": None,
            "code": error.code,
        }
    if error is INTERNAL:
        return {"detail": "Internal server error"}
    return {"detail": error.message}


def trtllm_anthropic_error(error: Rejection) -> dict[str, Any]:
    """The shape of the same frontend for the Messages API, which knows two types."""
    kind = "invalid_request_error" if status_of(error, ANTHROPIC) < 500 else "api_error"
    return {"type": "error", "error": {"type": kind, "message": _anthropic_text(error)}}


def _anthropic_text(error: Rejection) -> str:
    if error.code != TOO_LONG or error.message.lower().startswith(PROMPT_TOO_LONG):
        return error.message
    return f"{PROMPT_TOO_LONG}: {error.message}"
