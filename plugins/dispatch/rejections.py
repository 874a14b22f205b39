"""What a worker's error becomes for the client: its own words, and never its address."""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from kernel import Rejection
from plugins.dispatch.headers import headers_for_client
from plugins.envelopes import hide_addresses
from plugins.slots import WorkerRejection

ERROR_LIMIT: Final = 64 * 1024
"""Bytes of an error's body that are read; a longer one is not looked into."""

CONTEXT_LENGTH: Final = "context_length_exceeded"
"""OpenAI's code for a prompt that is too long; agents shorten their history when they see it."""

SHOWN_NAME: Final = 100
"""Characters of a name that a client sent, in a message to it."""

_INVALID: Final = "invalid_request_error"

_STATUSES: Final[Mapping[object, int]] = {
    "invalid_request_error": 400,
    "BadRequestError": 400,
    CONTEXT_LENGTH: 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "NotFoundError": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 503,
}
"""What the names of errors would have been as a status; of all others nobody knows more than that they are errors."""

_TRACE: Final = re.compile(r"\n\s*File \"")
"""Where SGLang's messages go on with the place in its sources at which they arose."""

_TOO_LONG: Final = re.compile(r"maximum context length is|exceeds the available context size", re.IGNORECASE)


def worker_rejection(status: int, body: bytes, headers: Mapping[str, str]) -> WorkerRejection:
    """The rejection that says what a worker's answer with a status of 400 or more says.

    OpenAI's shape `{"error": {...}}` and the flat one of TensorRT-LLM and SGLang are understood; of any other
    body only the status is told, since it may be a stack trace or another server's page.
    """
    if not 400 <= status <= 599:
        return WorkerRejection(502, f"the worker answered with status {status}", "worker_error")
    kept = tuple(headers_for_client(headers))
    error = _error_object(body)
    if error is None:
        return WorkerRejection(status, f"the worker rejected the request with status {status}", None, kept)
    message = _TRACE.split(error["message"], 1)[0]
    if status >= 500:
        message = hide_addresses(message)
    code, kind, param = (_text(error, name) for name in ("code", "type", "param"))
    if _is_too_long(message, code, kind):
        code = CONTEXT_LENGTH
    return WorkerRejection(status, message, code, kept, kind=kind, param=param)


def event_rejection(name: bytes, value: Mapping[str, Any], headers: Mapping[str, str]) -> WorkerRejection | None:
    """The rejection that says what an event of a stream says, if that is an error; `value` is the event's data.

    Errors are events of that name or type, objects of that kind, members of that name, and responses that failed.
    """
    error = value.get("error")
    if value.get("type") == "response.failed":
        response = value.get("response")
        error = (response.get("error") if isinstance(response, dict) else None) or {}
    elif not error and b"error" not in (name, str(value.get("type")).encode()) and value.get("object") != "error":
        return None
    told = error if isinstance(error, dict) else value
    code = told.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else None
    if status is None:
        kinds = (told.get("type"), code)
        status = next((_STATUSES[kind] for kind in kinds if isinstance(kind, str) and kind in _STATUSES), 500)
    return worker_rejection(status, orjson.dumps({"error": told}), headers)


class NoWorker(Rejection):
    """There is no worker to send a request to; after `seconds` there may be one."""

    def __init__(self, message: str, seconds: int) -> None:
        super().__init__(503, message, "no_worker_ready", (("retry-after", str(seconds)),))


def api_missing(path: str) -> Rejection:
    """The rejection of a request over an API that the workers of its model do not have."""
    return Rejection(404, f"the workers of this model do not serve {path}", "api_not_served", kind=_INVALID)


def unknown_model(name: str) -> Rejection:
    """The rejection of a request for a model that is not configured; a long name is not repeated."""
    shown = name if len(name) <= SHOWN_NAME else f"{name[:SHOWN_NAME]}..."
    return Rejection(404, f"the model {shown!r} does not exist", "model_not_found", kind=_INVALID, param="model")


def _error_object(body: bytes) -> Mapping[str, Any] | None:
    """The object that holds the message, if there is one."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(data, dict):
        return None
    error = data["error"] if isinstance(data.get("error"), dict) else data
    return error if isinstance(error.get("message"), str) and error["message"] else None


def _text(error: Mapping[str, Any], name: str) -> str | None:
    """A text field; vLLM and llama.cpp repeat the status as a number in `code`, which is no code."""
    value = error.get(name)
    return value if isinstance(value, str) and value else None


def _is_too_long(message: str, code: str | None, kind: str | None) -> bool:
    return (
        code == CONTEXT_LENGTH
        or kind == "exceed_context_size_error"  # llama.cpp
        or _TOO_LONG.search(message) is not None
    )
