"""What a worker's error becomes for the client."""

from typing import Any

import orjson
import pytest

from plugins.dispatch.rejections import worker_rejection

TOO_LONG = "This model's maximum context length is 2048 tokens. However, you sent more."
LLAMA = "request (9031 tokens) exceeds the available context size (2048 tokens), try increasing it"


def rejected(status: int, body: Any, headers: dict[str, str] | None = None) -> tuple[Any, ...]:
    """Status, message, code, kind and param of the rejection."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    rejection = worker_rejection(status, raw, headers or {})
    return rejection.status, rejection.message, rejection.code, rejection.kind, rejection.param


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            400,
            {"error": {"message": "bad n", "type": "BadRequestError", "param": "n", "code": 400}},
            (400, "bad n", None, "BadRequestError", "n"),
        ),
        (
            404,
            {"object": "error", "message": "no model", "type": "NotFoundError", "param": None, "code": 404},
            (404, "no model", None, "NotFoundError", None),
        ),
        (
            400,
            {"object": "error", "message": TOO_LONG, "type": "BadRequestError", "code": "context_length_exceeded"},
            (400, TOO_LONG, "context_length_exceeded", "BadRequestError", None),
        ),
        (
            400,
            {"error": {"message": TOO_LONG, "type": "BadRequestError", "param": "input_tokens", "code": 400}},
            (400, TOO_LONG, "context_length_exceeded", "BadRequestError", "input_tokens"),
        ),
        (
            400,
            {"error": {"code": 400, "message": LLAMA, "type": "exceed_context_size_error", "n_ctx": 2048}},
            (400, LLAMA, "context_length_exceeded", "exceed_context_size_error", None),
        ),
        (
            400,
            {"error": {"code": 400, "message": "too much", "type": "exceed_context_size_error"}},
            (400, "too much", "context_length_exceeded", "exceed_context_size_error", None),
        ),
        (
            429,
            {"error": {"message": "slow down", "code": "rate_limit_exceeded"}},
            (429, "slow down", "rate_limit_exceeded", None, None),
        ),
        (500, {"message": "the engine died"}, (500, "the engine died", None, None, None)),
        (400, {"error": {"message": 'wörtlich "so" \n'}}, (400, 'wörtlich "so" \n', None, None, None)),
    ],
)
def test_a_workers_own_words_are_kept(status: int, body: Any, expected: tuple[Any, ...]) -> None:
    """Both shapes are understood; a number is no code; a prompt that is too long always gets OpenAI's code."""
    assert rejected(status, body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Internal Server Error at http://10.0.0.5:8000</html>",
        b'{"error": {"message": "cut',
        b"\xff\xfe",
        b"[" * 100_000,
        {"detail": "Not Found"},
        {"error": "Traceback (most recent call last)"},
        {"error": {"message": {"text": "nested"}}},
        {"error": {"message": ""}},
        {"message": None},
        ["message"],
        "message",
        None,
    ],
)
def test_of_any_other_body_only_the_status_is_told(body: Any) -> None:
    """What is not an error object may be a stack trace or an address."""
    assert rejected(500, body) == (500, "the worker rejected the request with status 500", None, None, None)


def test_a_status_outside_http_is_a_bad_gateway() -> None:
    """A client is never sent a status that does not exist."""
    assert rejected(799, {"message": "no"})[:3] == (502, "the worker answered with status 799", "worker_error")


def test_a_worker_says_when_to_come_back() -> None:
    """Of the headers only the ones about limits are passed on, and only clean values."""
    headers = {
        "Retry-After": "7",
        "X-RateLimit-Remaining-Requests": "0",
        "x-ratelimit-reset": "zwölf",
        "x-ratelimit-limit": "9" * 300,
        "x-ratelimit- odd": "1",
        "server": "uvicorn",
        "set-cookie": "a=b",
        "x-internal-host": "10.0.0.5",
    }
    rejection = worker_rejection(429, b"", headers)
    assert rejection.headers == (("retry-after", "7"), ("x-ratelimit-remaining-requests", "0"))
