"""What the fields of a request may be, field by field."""

from typing import Any

import pytest

from plugins.schemas.anthropic import check_count, check_messages
from plugins.schemas.openai import check_chat, check_completion
from plugins.schemas.responses import check_responses
from tests.plugins.support import chat
from tests.plugins.values import SECRET, VALUES, Check, refusal

INTEGERS = {"integer", "zero", "negative", "largest"}
POSITIVE = {"integer", "largest"}
NATURAL = POSITIVE | {"zero"}
NUMBERS = INTEGERS | {"too large", "huge", "float", "whole float"}
STRINGS = {"string", "empty"}
COMMON = {
    "frequency_penalty": NUMBERS,
    "logit_bias": {"object"},
    "max_tokens": INTEGERS,
    "min_p": NUMBERS,
    "n": POSITIVE,
    "presence_penalty": NUMBERS,
    "response_format": {"object"},
    "seed": INTEGERS,
    "stop": STRINGS | {"array", "strings"},
    "stream": {"boolean"},
    "temperature": NUMBERS,
    "top_k": INTEGERS,
    "top_p": NUMBERS,
    "user": STRINGS,
}
COMPLETION = COMMON | {
    "best_of": POSITIVE,
    "echo": {"boolean"},
    "logprobs": INTEGERS | {"boolean"},
    "prompt": STRINGS | {"strings", "integers", "nested integers"},
    "suffix": STRINGS,
}
CHAT = COMMON | {
    "chat_template_kwargs": {"object"},
    "logprobs": {"boolean"},
    "max_completion_tokens": INTEGERS,
    "messages": set[str](),
    "parallel_tool_calls": {"boolean"},
    "tool_choice": STRINGS | {"object"},
    "tools": {"array", "objects"},
    "top_logprobs": NATURAL,
}
RESPONSES = {
    "client_metadata": {"object"},
    "include": {"array", "strings"},
    "input": STRINGS | {"objects"},
    "instructions": STRINGS,
    "max_output_tokens": INTEGERS,
    "max_tool_calls": INTEGERS,
    "metadata": {"object"},
    "parallel_tool_calls": {"boolean"},
    "prompt_cache_key": STRINGS,
    "reasoning": {"object"},
    "service_tier": STRINGS,
    "store": {"boolean"},
    "stream": {"boolean"},
    "stream_options": {"object"},
    "temperature": NUMBERS,
    "text": {"object"},
    "tool_choice": STRINGS | {"object"},
    "tools": {"array", "objects"},
    "top_logprobs": NATURAL,
    "top_p": NUMBERS,
    "truncation": STRINGS,
    "user": STRINGS,
}
COUNT = {
    "messages": set[str](),
    "system": STRINGS | {"array", "objects"},
    "thinking": {"object"},
    "tool_choice": {"object"},
    "tools": {"array", "objects"},
}
MESSAGES = COUNT | {
    "max_tokens": NATURAL,
    "metadata": {"object"},
    "stop_sequences": {"array", "strings"},
    "stream": {"boolean"},
    "temperature": NUMBERS,
    "top_k": INTEGERS,
    "top_p": NUMBERS,
}

APIS = [
    (check_completion, {"model": "m", "prompt": "x"}, COMPLETION, {"prompt"}),
    (check_chat, chat(), CHAT, {"messages"}),
    (check_responses, {"model": "m", "input": "x"}, RESPONSES, {"input"}),
    (check_messages, chat(max_tokens=1), MESSAGES, {"messages", "max_tokens"}),
    (check_count, chat(), COUNT, {"messages"}),
]
each_api = pytest.mark.parametrize(
    ("check", "data", "fields", "required"), APIS, ids=["completions", "chat", "responses", "messages", "count_tokens"]
)


@each_api
def test_every_defined_field_takes_its_own_kind(
    check: Check, data: dict[str, Any], fields: dict[str, set[str]], required: set[str]
) -> None:
    """Each field takes the values of its kind, and of no other; the message names the field and repeats nothing."""
    for name, right in fields.items():
        for kind, value in VALUES.items():
            refused = refusal(check, data | {name: value})

            assert (refused is None) == (kind in right), (name, kind)
            if refused is not None:
                assert (refused.status, refused.param, refused.code) == (400, name, "invalid_type")
                assert refused.message.startswith(f"'{name}' must be ")
                assert SECRET not in refused.message
                assert "123456" not in refused.message


@each_api
def test_null_is_as_good_as_nothing(
    check: Check, data: dict[str, Any], fields: dict[str, set[str]], required: set[str]
) -> None:
    """Every field may be null but those that a request cannot do without."""
    for name in fields.keys() - required:
        assert refusal(check, data | {name: None}) is None, name
    for name in required | {"model"}:
        refused = refusal(check, data | {name: None})
        assert refused is not None
        assert (refused.param, refused.code) == (name, "missing_required_field")


@each_api
def test_model_is_required(check: Check, data: dict[str, Any], fields: dict[str, set[str]], required: set[str]) -> None:
    """A model is a text that is not empty."""
    for wrong in (None, "", 7, ["m"], True):
        refused = refusal(check, data | {"model": wrong})
        assert refused is not None
        assert refused.param == "model"
    missing = refusal(check, {name: value for name, value in data.items() if name != "model"})
    assert missing is not None
    assert missing.code == "missing_required_field"


@pytest.mark.parametrize("name", ["custom", "min_tokens", "priority", "disaggregated_params", "Temperature"])
def test_other_fields_are_the_workers_business(name: str) -> None:
    """A field that this API does not define is not checked."""
    for value in VALUES.values():
        assert refusal(check_chat, chat(**{name: value})) is None


@pytest.mark.parametrize("field", ["echo", "suffix", "best_of", "prompt"])
def test_fields_of_completions_are_none_of_chats(field: str) -> None:
    """Each API checks its own fields."""
    assert refusal(check_chat, chat(**{field: ["x", 1]})) is None
