"""What messages, prompts, conversations and options of a stream look like, and what they do not."""

from typing import Any

import pytest

from plugins.schemas.openai import check_chat, check_completion
from tests.plugins.support import chat
from tests.plugins.values import VALUES, refusal

NO_IDENTITIES: tuple[Any, ...] = (None, "", " \n", True, 0.5, ["c"], {}, "x" * 1025)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "x"}],
        [{"role": "user", "content": ""}, {"role": "assistant", "content": None, "tool_calls": []}],
        [{"role": "assistant"}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}, "x"]}],
        [{"role": "made-up", "content": [], "custom": 1}],
    ],
)
def test_messages_that_pass(messages: list[Any]) -> None:
    """A message has a role; its content is text, parts, or nothing."""
    assert refusal(check_chat, chat(messages=messages)) is None


@pytest.mark.parametrize(
    "messages",
    [
        [],
        {"role": "user"},
        ["x"],
        [None],
        [[]],
        [{}],
        [{"content": "x"}],
        [{"role": None}],
        [{"role": 7}],
        [{"role": "user", "content": 7}],
        [{"role": "user", "content": {"type": "text"}}],
        [{"role": "user", "content": [None]}],
        [{"role": "user", "content": [["x"]]}],
        [{"role": "user", "content": "x"}, {"role": "user", "content": False}],
    ],
)
def test_messages_that_are_refused(messages: Any) -> None:
    """Whatever is no array of messages is refused as a whole."""
    refused = refusal(check_chat, chat(messages=messages))

    assert refused is not None
    assert refused.param == "messages"


@pytest.mark.parametrize("prompt", [[], [[]], [[1], []], [[1], ["x"]], [[True]], ["x", [1]], [0.5], [{}]])
def test_prompts_that_are_refused(prompt: list[Any]) -> None:
    """A list of prompts has one kind, and none of its arrays of token ids is empty."""
    assert refusal(check_completion, {"model": "m", "prompt": prompt}) is not None


@pytest.mark.parametrize("identity", ["c", " c ", 7, "x" * 1024])
def test_conversations_that_pass(identity: Any) -> None:
    """A conversation's id is text or a number."""
    assert refusal(check_chat, chat(conversation_params={"conversation_id": identity, "other": 1})) is None


@pytest.mark.parametrize(
    "params",
    [
        *(value for kind, value in VALUES.items() if kind != "object"),
        {},
        *({"conversation_id": identity} for identity in NO_IDENTITIES),
    ],
)
def test_conversations_that_are_refused(params: Any) -> None:
    """An id that is missing, blank, too long or of another kind is refused."""
    refused = refusal(check_chat, chat(conversation_params=params))

    assert refused is not None
    assert refused.param == "conversation_params"


@pytest.mark.parametrize("stream", [False, None])
def test_stream_options_need_a_stream(stream: bool | None) -> None:
    """Options for a stream that was not asked for are refused; null ones are none."""
    refused = refusal(check_chat, chat(stream=stream, stream_options={"include_usage": True}))

    assert refused is not None
    assert (refused.param, refused.code) == ("stream_options", "invalid_value")
    assert refusal(check_chat, chat(stream=stream, stream_options=None)) is None
    assert refusal(check_chat, chat(stream=True, stream_options={})) is None
    assert refusal(check_chat, chat(stream=True, stream_options=[])) is not None
