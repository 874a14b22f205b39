"""Requests to the Responses API that the tests of its translation share."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from plugins.responses.request import chat_request
from plugins.slots import InvalidRequest

RECORDED = Path(__file__).parent / "recorded"
"""What real clients sent."""

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "get_weather", "description": "Weather", "parameters": PARAMETERS}
SPACE = {"type": "namespace", "name": "agents", "description": "All of them", "tools": [TOOL | {"name": "spawn"}]}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city":"Paris"}',
}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
PICTURE = {"type": "image_url", "image_url": {"url": IMAGE["image_url"]}}


def request(*items: Any, **fields: Any) -> dict[str, Any]:
    """A request with these items."""
    return {"model": "m", "input": [*items] or "Say hello", **fields}


def said(role: str, *texts: str) -> dict[str, Any]:
    """A message."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def output(value: Any = "sunny", call: str = "call_1") -> dict[str, Any]:
    """What a tool gave."""
    return {"type": "function_call_output", "call_id": call, "output": value}


def thought(*texts: str, field: str = "content") -> dict[str, Any]:
    """What was thought."""
    kind = "reasoning_text" if field == "content" else "summary_text"
    return {"type": "reasoning", "id": "rs_1", "summary": [], field: [{"type": kind, "text": text} for text in texts]}


def asked(*items: Any, **fields: Any) -> Any:
    """The messages of the chat request."""
    return chat_request(request(*items, **fields))["messages"]


def refusal(data: dict[str, Any]) -> str:
    """Why a request is refused; the message begins with the place that the error names."""
    with pytest.raises(InvalidRequest) as refused:
        chat_request(data)
    error = refused.value
    assert error.status == 400
    assert error.message.startswith(f"{error.param}: ")
    return error.message


def recorded_request(name: str) -> Any:
    """The body that a real client sent."""
    return orjson.loads((RECORDED / f"client_{name}.json").read_bytes())
