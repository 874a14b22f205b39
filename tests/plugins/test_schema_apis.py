"""What requests of the Responses and Messages APIs look like, what is refused for a reason, and what is relayed."""

from typing import Any

import pytest

from kernel import Endpoint
from plugins.endpoints import DETOKENIZE, EMBEDDINGS, RERANK, SCORE, TOKENIZE
from plugins.schemas import CHECKS
from plugins.schemas.anthropic import check_count, check_messages
from plugins.schemas.responses import check_responses
from tests.plugins.support import chat
from tests.plugins.values import SECRET, VALUES, refusal

RESPONSE = {"model": "m", "input": "x"}


@pytest.mark.parametrize(
    "value", [[{"role": "user", "content": "x"}], [{"type": "function_call_output", "output": "x"}], "x"]
)
def test_inputs_that_pass(value: Any) -> None:
    """An input is text, or items of any type: workers know more of them than this table could."""
    assert refusal(check_responses, RESPONSE | {"input": value}) is None


@pytest.mark.parametrize("value", [[], ["x"], [None], [{"role": "user"}, "x"], {"role": "user"}, 7, True])
def test_inputs_that_are_refused(value: Any) -> None:
    """An empty list, or one with anything but items."""
    refused = refusal(check_responses, RESPONSE | {"input": value})

    assert refused is not None
    assert refused.param == "input"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("previous_response_id", f"resp_{SECRET}"),
        ("previous_response_id", ""),
        ("prompt", {"id": SECRET}),
        ("background", True),
    ],
)
def test_what_needs_a_store_is_refused(field: str, value: Any) -> None:
    """No answer is kept, so that nothing can be said about an earlier one; the message says what to do."""
    refused = refusal(check_responses, RESPONSE | {field: value})

    assert refused is not None
    assert (refused.status, refused.param, refused.code) == (400, field, "unsupported_parameter")
    assert "not supported" in refused.message
    assert SECRET not in refused.message
    assert refusal(check_responses, RESPONSE | {field: None}) is None


def test_what_is_refused_for_an_earlier_answer_needs_no_input() -> None:
    """A client that goes on from an earlier answer learns why it cannot, not that its input is missing."""
    refused = refusal(check_responses, {"model": "m", "previous_response_id": "resp_1"})

    assert refused is not None
    assert refused.param == "previous_response_id"


@pytest.mark.parametrize("store", [True, False, None])
@pytest.mark.parametrize("background", [False, None])
def test_store_and_background_without_effect_pass(store: bool | None, background: bool | None) -> None:
    """A wish to have the answer kept is no reason to give none."""
    assert refusal(check_responses, RESPONSE | {"store": store, "background": background}) is None


@pytest.mark.parametrize("check", [check_messages, check_count])
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "x"}, {"role": "system", "content": [{"type": "text", "text": "x"}]}],
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}],
        [{"role": "assistant", "content": [{"type": "made-up"}]}, {"role": "user", "content": ""}],
    ],
)
def test_messages_that_pass(check: Any, messages: Any) -> None:
    """Roles and types of blocks are the worker's business."""
    assert refusal(check, chat(messages=messages, max_tokens=1)) is None


@pytest.mark.parametrize("check", [check_messages, check_count])
@pytest.mark.parametrize(
    "messages",
    [
        [],
        {"role": "user"},
        ["x"],
        [{"content": "x"}],
        [{"role": 7, "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": {}}],
        [{"role": "user", "content": ["x"]}],
    ],
)
def test_messages_that_are_refused(check: Any, messages: Any) -> None:
    """Whatever is no array of messages with content is refused as a whole."""
    refused = refusal(check, chat(messages=messages, max_tokens=1))

    assert refused is not None
    assert refused.param == "messages"


def test_tokens_are_counted_without_a_limit() -> None:
    """Only an answer has one."""
    assert refusal(check_count, chat()) is None
    refused = refusal(check_messages, chat())
    assert refused is not None
    assert (refused.param, refused.code) == ("max_tokens", "missing_required_field")


@pytest.mark.parametrize("check", [check_messages, check_responses])
def test_conversations_are_looked_at_in_every_api(check: Any) -> None:
    """What is forwarded as the conversation has an id."""
    data = chat(max_tokens=1, input="x")

    assert refusal(check, data | {"conversation_params": {"conversation_id": "c"}}) is None
    refused = refusal(check, data | {"conversation_params": {"conversation_id": " "}})
    assert refused is not None
    assert refused.param == "conversation_params"


@pytest.mark.parametrize("endpoint", [EMBEDDINGS, RERANK, SCORE], ids=lambda endpoint: endpoint.name)
def test_what_is_relayed_names_a_model(endpoint: Endpoint) -> None:
    """All else is for the worker to judge."""
    assert refusal(CHECKS[endpoint], {"model": "m", "input": 7, "documents": None}) is None
    for data in ({}, {"model": None}, {"model": ""}, {"model": 7}):
        assert refusal(CHECKS[endpoint], data) is not None


@pytest.mark.parametrize("endpoint", [TOKENIZE, DETOKENIZE], ids=lambda endpoint: endpoint.name)
def test_tokens_need_no_model(endpoint: Endpoint) -> None:
    """llama.cpp's clients name none; a name that is none is refused all the same."""
    assert refusal(CHECKS[endpoint], {"content": "x"}) is None
    assert refusal(CHECKS[endpoint], {"model": None}) is None
    for kind, value in VALUES.items():
        assert (refusal(CHECKS[endpoint], {"model": value}) is None) == (kind == "string")
