"""A whole answer of the Responses or the messages API as a stream."""

from typing import Any

import orjson
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from plugins.dispatch.named_events import replay_message, replay_response
from tests.stub.pairs import frames

PART = {"type": "output_text", "text": "Hi", "annotations": []}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 5,
    "model": "m",
    "output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [PART]}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "status": "completed",
    "usage": {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 4,
    },
}
EVENTS: "TypeAdapter[Any]" = TypeAdapter(ResponseStreamEvent)


@pytest.mark.parametrize(
    ("status", "last"),
    [
        ("completed", "response.completed"),
        ("incomplete", "response.incomplete"),
        ("failed", "response.failed"),
        (None, "response.completed"),
    ],
)
def test_a_response_is_three_events(status: str | None, last: str) -> None:
    """Numbered from zero, with one id, and the last one says how it ended; the SDK reads each of them."""
    answer = {**RESPONSE, "status": status}
    events = frames(b"".join(replay_response(answer)))
    assert [name for name, _ in events] == ["response.created", "response.in_progress", last]
    for number, (name, data) in enumerate(events):
        assert (data["type"], data["sequence_number"], data["response"]["id"]) == (name, number, "resp_1")
        if status is not None:
            assert type(EVENTS.validate_python(data)).__name__ != "dict"
    for _, data in events[:2]:
        opened = data["response"]
        assert (opened["status"], opened["output"], opened["usage"]) == ("in_progress", [], None)
    assert events[2][1]["response"] == answer


BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Hm", "signature": "s"},
    {"type": "thinking", "thinking": "Oh", "signature": ""},
    {"type": "text", "text": "Hi"},
    {"type": "text", "text": ""},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1]}},
    {"type": "redacted_thinking", "data": "x"},
]


def message(blocks: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A whole message."""
    usage = {"input_tokens": 3, "output_tokens": 7, "cache_read_input_tokens": 2}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    return {**head, "stop_reason": "tool_use", "usage": usage, **fields}


def test_a_message_is_its_blocks_one_after_the_other() -> None:
    """Put together again they are what they were."""
    answer = message(BLOCKS)
    events = frames(b"".join(replay_message(answer)))
    assert all(name == data["type"] for name, data in events)
    (_, started), *middle, (_, ended), (name, _) = events
    assert (started["message"]["content"], started["message"]["stop_reason"]) == ([], None)
    assert started["message"]["usage"] == {**answer["usage"], "output_tokens": 0}
    assert (ended["delta"], ended["usage"]) == ({"stop_reason": "tool_use", "stop_sequence": None}, answer["usage"])
    assert name == "message_stop"
    blocks: list[dict[str, Any]] = []
    for name, data in middle:
        match name, data.get("delta"):
            case "content_block_start", _:
                assert data["index"] == len(blocks)
                blocks.append(dict(data["content_block"]))
            case _, {"type": "input_json_delta", "partial_json": text}:
                blocks[-1]["input"] = orjson.loads(text)
            case _, dict(delta):
                blocks[-1].update((key, value) for key, value in delta.items() if key != "type")
            case _:
                assert name == "content_block_stop"
    assert blocks == BLOCKS
    assert len(middle) == 2 * len(BLOCKS) + 6


@pytest.mark.parametrize("answer", [message([]), {"id": "x"}, message([], content=None, usage=None)])
def test_a_message_that_says_nothing_still_begins_and_ends(answer: dict[str, Any]) -> None:
    """Clients wait for both."""
    assert [name for name, _ in frames(b"".join(replay_message(answer)))] == [
        *("message_start", "message_delta", "message_stop"),
    ]
