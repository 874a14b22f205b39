"""Requests to the Messages API, and chat streams, that the tests of its translation share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from plugins.messages.request import chat_request
from plugins.slots import InvalidRequest

RECORDED = Path(__file__).parent / "recorded"
"""What real clients sent, and what real engines answered over the chat API."""

TOOL = {
    "name": "get_weather",
    "description": "Weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
PIXEL = "iVBORw0KGgo="


def request(*content: Any, **fields: Any) -> dict[str, Any]:
    """A request with one turn of the user, made of these blocks."""
    turn = {"role": "user", "content": [*content] or "Say hello"}
    return {"model": "m", "max_tokens": 2048, "messages": [turn], **fields}


def turns(*messages: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    """A request with these turns, given as roles and contents."""
    return request() | {"messages": [{"role": role, "content": content} for role, content in messages]} | fields


def text(value: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": value}


def result(content: Any = "sunny", **fields: Any) -> dict[str, Any]:
    """What the tool of `USE` gave."""
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **fields}


def asked(data: dict[str, Any]) -> Any:
    """The messages of the chat request."""
    return chat_request(data)["messages"]


def refusal(data: dict[str, Any]) -> str:
    """Why a request is refused; the message begins with the place that the error names."""
    with pytest.raises(InvalidRequest) as refused:
        chat_request(data)
    error = refused.value
    assert error.status == 400
    assert error.param is not None
    assert error.message.startswith(f"{error.param}: ")
    return error.message


def recorded_request(name: str) -> Any:
    """The body that a real client sent."""
    return orjson.loads((RECORDED / f"client_{name}.json").read_bytes())


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """One event of a chat stream; `fields` are of the choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, **fields}
    return event({"object": "chat.completion.chunk", "choices": [choice]})


def usage(prompt: int, completion: int, cached: int | None = None) -> bytes:
    """The event that tells the tokens."""
    details = None if cached is None else {"cached_tokens": cached}
    tokens = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
    return event({"choices": [], "usage": tokens})


def call(index: int, arguments: str | None = None, name: str | None = None, given: str | None = None) -> dict[str, Any]:
    """A delta with a piece of one tool call."""
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": given, "type": "function", "function": function}]}


def event(data: object) -> bytes:
    """An event without a name."""
    return b"data: " + orjson.dumps(data) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def parsed(stream: bytes) -> Iterator[dict[str, Any]]:
    """The data of each Messages event, whose name is that of its data."""
    for frame in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, _, data = frame.partition("\n")
        value = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        yield value
