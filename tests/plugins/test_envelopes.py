"""The JSON shapes in which errors reach a client."""

from typing import Any

import pytest

from kernel import Rejection
from plugins.endpoints import Dialect
from plugins.envelopes import (
    INTERNAL,
    anthropic_error,
    openai_error,
    rejection_of,
    status_of,
    trtllm_anthropic_error,
    trtllm_error,
)
from plugins.slots import InvalidRequest, WorkerRejection


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
    ],
)
def test_openai_error_has_the_type_of_its_status(status: int, kind: str) -> None:
    """Without a type of its own, an error has the one that its status means."""
    assert openai_error(Rejection(status, "m")) == {
        "error": {"message": "m", "type": kind, "param": None, "code": None}
    }


def test_openai_error_has_all_that_a_rejection_says() -> None:
    """Message, type, param and code of the rejection are those of the error."""
    rejection = Rejection(400, "m", "c", kind="k", param="p")

    assert openai_error(rejection) == {"error": {"message": "m", "type": "k", "param": "p", "code": "c"}}


@pytest.mark.parametrize(
    ("error", "shape"),
    [
        (InvalidRequest(400, "m", "c", param="p"), {"error": "m"}),
        (Rejection(404, "m", "c"), {"detail": "m"}),
        (WorkerRejection(429, "m"), {"detail": "m"}),
        (
            WorkerRejection(400, "m", "context_length_exceeded", kind="k", param="p"),
            {
                "object": "error",
                "message": "m",
                "type": "BadRequestError",
                "param": None,
                "code": "context_length_exceeded",
            },
        ),
        (INTERNAL, {"detail": "Internal server error"}),
    ],
)
def test_trtllm_error_has_the_shape_of_its_kind(error: Rejection, shape: dict[str, Any]) -> None:
    """Bad bodies, prompts that are too long, faults, and everything else look as they do there."""
    assert trtllm_error(error) == shape


@pytest.mark.parametrize("error", [ValueError("secret"), KeyboardInterrupt(), None])
def test_of_a_fault_a_client_knows_nothing(error: BaseException | None) -> None:
    """Whatever is no rejection is one constant internal error."""
    assert rejection_of(error) is INTERNAL
    assert INTERNAL.status == 500


def test_rejections_speak_for_themselves() -> None:
    """A rejection is its own answer."""
    rejection = Rejection(404, "m")

    assert rejection_of(rejection) is rejection


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (408, "invalid_request_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_anthropic_error_has_the_type_of_its_status(status: int, kind: str) -> None:
    """Whatever type a worker gave it, and with the id of the request."""
    told = {"type": "error", "error": {"type": kind, "message": "m"}, "request_id": "r"}

    assert anthropic_error(Rejection(status, "m", "c", kind="BadRequestError", param="p"), "r") == told


@pytest.mark.parametrize("status", [400, 413, 422, 500])
@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("the context is full", "prompt is too long: the context is full"),
        ("Prompt is too long: 9 tokens > 8 maximum", "Prompt is too long: 9 tokens > 8 maximum"),
    ],
)
def test_anthropic_error_of_a_long_prompt_begins_with_the_words(status: int, message: str, told: str) -> None:
    """Clients shorten their conversation when they read them, in a 400; the worker's own words follow."""
    error = WorkerRejection(status, message, "context_length_exceeded")

    assert status_of(error, "anthropic") == 400
    for shape in (anthropic_error(error, "r"), trtllm_anthropic_error(error)):
        assert shape["error"] == {"type": "invalid_request_error", "message": told}


@pytest.mark.parametrize("dialect", ["openai", "responses"])
def test_other_dialects_keep_the_status(dialect: Dialect) -> None:
    """There the code says that the prompt is too long."""
    assert status_of(WorkerRejection(413, "m", "context_length_exceeded"), dialect) == 413


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (429, "invalid_request_error"), (503, "api_error")]
)
def test_trtllm_knows_two_types_of_anthropics(status: int, kind: str) -> None:
    """As its Messages API has it, without an id."""
    assert trtllm_anthropic_error(Rejection(status, "m")) == {"type": "error", "error": {"type": kind, "message": "m"}}
