"""What the fields of a request to the Responses API may be, and what of that API nobody here can do."""

from collections.abc import Mapping
from typing import Any, Final

from plugins.schemas.kinds import (
    BOOLEAN,
    CHOICE,
    CONVERSATION,
    INTEGER,
    NATURAL,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRING,
    STRINGS,
    Rule,
    all_are,
    check_fields,
    refuse,
    rule,
)


def _input(value: Any) -> str | None:
    if value.__class__ is list and value and all_are(dict, value):
        return None
    return "a string or a non-empty array of items"


_FIELDS: Final[dict[str, Rule]] = {
    "background": BOOLEAN,
    "client_metadata": OBJECT,
    "conversation_params": CONVERSATION,
    "include": STRINGS,
    "input": rule(_input, str),
    "instructions": STRING,
    "max_output_tokens": INTEGER,
    "max_tool_calls": INTEGER,
    "metadata": OBJECT,
    "parallel_tool_calls": BOOLEAN,
    "prompt_cache_key": STRING,
    "reasoning": OBJECT,
    "service_tier": STRING,
    "store": BOOLEAN,
    "stream": BOOLEAN,
    "stream_options": OBJECT,
    "temperature": NUMBER,
    "text": OBJECT,
    "tool_choice": CHOICE,
    "tools": OBJECTS,
    "top_logprobs": NATURAL,
    "top_p": NUMBER,
    "truncation": STRING,
    "user": STRING,
}
_WITHOUT_STORE: Final = {
    "previous_response_id": "answers are not kept between requests; send the whole conversation in 'input'",
    "prompt": "stored prompts are not kept here; send the prompt in 'input'",
}


def check_responses(data: Mapping[str, Any]) -> None:
    """Check a request to `/v1/responses`; what would have to be looked up in a store is refused.

    Raises:
        InvalidRequest: 400, naming the field.
    """
    for name, reason in _WITHOUT_STORE.items():
        if data.get(name) is not None:
            refuse(name, f"{name!r} is not supported: {reason}", "unsupported_parameter")
    check_fields(data, _FIELDS, "input")
    if data.get("background"):
        reason = "answers are not kept, so that a later request could not fetch one"
        refuse("background", f"'background': true is not supported: {reason}", "unsupported_parameter")
