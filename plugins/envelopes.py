"""The JSON shapes in which errors reach a client."""

from typing import Any, Final

from kernel import Rejection
from plugins.slots import InvalidRequest

INTERNAL: Final = Rejection(500, "internal server error", "internal_error")

_KINDS: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def rejection_of(error: BaseException | None) -> Rejection:
    """What a client may know of an error: a rejection says it itself, a fault stays internal."""
    return error if isinstance(error, Rejection) else INTERNAL


def openai_error(error: Rejection) -> dict[str, Any]:
    """OpenAI's error object."""
    kind = error.kind or _KINDS.get(error.status)
    if kind is None:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def trtllm_error(error: Rejection) -> dict[str, Any]:
    """The shapes of TensorRT-LLM's disaggregated frontend; a fault's own text is left out."""
    if isinstance(error, InvalidRequest):
        return {"error": error.message}
    if error.code == "context_length_exceeded":
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
