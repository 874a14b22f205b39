"""A request to `/v1/messages` as one to `/v1/chat/completions`."""

from typing import Any, Final

from plugins.chat.reading import Data, refusal, text_in
from plugins.messages.options import option_fields
from plugins.messages.tools import tool_fields
from plugins.messages.turns import chat_messages

_SAME: Final = ("temperature", "top_p", "top_k", "cache_salt", "priority", "conversation_params")
"""Fields that both APIs have, or workers have in both."""

_SERVICES: Final = {
    "mcp_servers": "the server does not connect to MCP servers; let the client offer their tools",
    "container": "there are no containers for code execution",
}


def chat_request(data: Data) -> Data:
    """The body for workers that only have the chat API.

    Raises:
        InvalidRequest: 400, it says what cannot be said there; the message names the place.
    """
    for name, reason in _SERVICES.items():
        if data.get(name):
            raise refusal(name, reason)
    limit = data.get("max_tokens")
    if limit is None:
        raise refusal("max_tokens", "missing required field", "missing_required_field")
    if limit.__class__ is not int or limit < 1:
        raise refusal("max_tokens", "expected an integer of at least 1", "invalid_type")
    body: Data = {"model": data["model"], "messages": chat_messages(data), "max_completion_tokens": limit}
    body |= {name: data[name] for name in _SAME if data.get(name) is not None}
    if stops := _stops(data.get("stop_sequences")):
        body["stop"] = stops
    if data.get("stream"):
        # usage in every event gives the stream's start the tokens of the prompt, where a worker can
        body |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and metadata.get("user_id") is not None:
        body["user"] = text_in(metadata, "user_id", "metadata")
    return body | tool_fields(data) | option_fields(data, limit)


def _stops(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(stop, str) for stop in value):
        raise refusal("stop_sequences", "expected an array of strings", "invalid_type")
    return value
