"""A whole answer as a stream."""

from typing import Any

import orjson
import pytest

from plugins.dispatch.replay import replay

HEAD = {"id": "x", "created": 5, "model": "m"}


def events(answer: dict[str, Any], *, chat: bool = True, usage: bool = False) -> list[dict[str, Any]]:
    """The events of the replayed answer, without the end marker."""
    *chunks, done = replay({**HEAD, **answer}, chat=chat, usage=usage)
    assert done == b"data: [DONE]\n\n"
    assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in chunks)
    return [orjson.loads(chunk[6:]) for chunk in chunks]


def test_a_chat_has_a_role_its_content_and_an_end() -> None:
    """Each event has the answer's own id, time and model."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Hi", "reasoning_content": None, "tool_calls": []},
        "logprobs": {"content": []},
        "finish_reason": "stop",
        "stop_reason": None,
    }
    got = events({"choices": [choice], "usage": {"total_tokens": 1}})
    assert [event["choices"] for event in got] == [
        [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
        [{"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": []}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": None}],
    ]
    assert all(
        {**event, "choices": None} == {**HEAD, "object": "chat.completion.chunk", "choices": None} for event in got
    )


def test_tool_calls_are_numbered() -> None:
    """A stream's tool calls have an index, by which clients put their parts together."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call, call]}
    got = events({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert got[1]["choices"][0]["delta"] == {"tool_calls": [{"index": 0, **call}, {"index": 1, **call}]}


def test_a_completion_says_all_at_once() -> None:
    """Its text and its end are one event for each choice."""
    got = events({"choices": [{"text": "A", "finish_reason": "stop"}, {"index": 1, "text": "B"}]}, chat=False)
    assert [event["choices"] for event in got] == [
        [{"index": 0, "text": "A", "finish_reason": "stop"}],
        [{"index": 1, "text": "B"}],
    ]
    assert {event["object"] for event in got} == {"text_completion"}


@pytest.mark.parametrize("chat", [True, False])
def test_the_counts_come_last_where_they_were_asked_for(chat: bool) -> None:
    """In an event without choices."""
    answer = {"choices": [], "usage": {"total_tokens": 1}}
    last = events(answer, chat=chat, usage=True)[-1]
    assert (last["choices"], last["usage"]) == ([], {"total_tokens": 1})


def test_an_empty_message_still_has_a_role_and_an_end() -> None:
    """Clients wait for both."""
    got = events({"choices": [{"message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]})
    assert [event["choices"][0]["delta"] for event in got] == [{"role": "assistant", "content": ""}, {}]
