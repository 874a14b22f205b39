"""A request to `/v1/responses` as one to `/v1/chat/completions`."""

from typing import Any, Final

from plugins.chat.reading import Data, object_in, refusal, text_in
from plugins.responses.items import chat_messages
from plugins.responses.tools import tool_fields

_SAME: Final = (
    "temperature", "top_p", "user", "chat_template_kwargs", "cache_salt", "priority", "conversation_params",
)  # fmt: skip
"""Fields that both APIs have, or workers have in both."""


def chat_request(data: Data) -> Data:
    """The body for workers that only have the chat API.

    Raises:
        InvalidRequest: 400, it says what cannot be said there; the message names the place.
    """
    if data.get("conversation") is not None:
        raise refusal("conversation", "conversations are not kept here; send the items in 'input'")
    if data.get("top_logprobs") or "message.output_text.logprobs" in (data.get("include") or ()):
        raise refusal("top_logprobs", "there are none with workers that only have the chat API")
    body: Data = {"model": data["model"], "messages": chat_messages(data)}
    limit = data.get("max_output_tokens")
    if limit is not None:
        if limit.__class__ is not int or limit < 1:
            raise refusal("max_output_tokens", "expected an integer of at least 1", "invalid_type")
        body["max_completion_tokens"] = limit
    body |= {name: data[name] for name in _SAME if data.get(name) is not None}
    if data.get("stream"):
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    effort = object_in(data, "reasoning").get("effort")
    if effort is not None:
        body["reasoning_effort"] = effort
    form = object_in(data, "text").get("format")
    if form is not None and (chosen := _form(form)):
        body["response_format"] = chosen
    return body | tool_fields(data)


def _form(form: Any) -> Data | None:
    place = "text.format"
    if not isinstance(form, dict):
        raise refusal(place, "expected an object", "invalid_type")
    match form.get("type"):
        case "text":
            return None
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            schema = {name: form[name] for name in ("schema", "strict", "description") if form.get(name) is not None}
            return {"type": "json_schema", "json_schema": {"name": text_in(form, "name", place), **schema}}
        case _:
            raise refusal(f"{place}.type", "expected text, json_object or json_schema")
