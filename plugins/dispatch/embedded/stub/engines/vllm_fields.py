"""The request fields of vLLM's endpoints; unknown ones are taken and ignored."""

from collections.abc import Mapping
from typing import Final

from attrs import evolve

from plugins.dispatch.embedded.stub import apis
from plugins.dispatch.embedded.stub.fields import (
    BOOLEAN,
    INTEGER,
    LIST,
    NUMBER,
    OBJECT,
    PROMPT,
    STOP,
    STRING,
    TOKEN_IDS,
    Kind,
    Table,
    nested,
    optional,
    required,
)

_STREAM_OPTIONS: Final = Table(optional(BOOLEAN, "include_usage continuous_usage_stats"), open=True)
_MESSAGE: Final = Table(required(STRING, "role"), open=True)
_CONTENT: Final = Kind("union_type", "a valid string or list", lambda value: isinstance(value, str | list))

_SAMPLING: Final[Mapping[str, Kind]] = {
    **optional(STRING, "model user cache_salt"),
    **optional(NUMBER, "temperature top_p"),
    **optional(BOOLEAN, "stream"),
    **optional(OBJECT, "kv_transfer_params"),
}
_OPENAI: Final[Mapping[str, Kind]] = {
    **_SAMPLING,
    **optional(INTEGER, "n max_tokens min_tokens seed"),
    **optional(NUMBER, "presence_penalty frequency_penalty cache_hit_threshold"),
    **optional(BOOLEAN, "ignore_eos return_token_ids"),
    **optional(STOP, "stop"),
    **optional(TOKEN_IDS, "stop_token_ids"),
    **nested(_STREAM_OPTIONS, "stream_options"),
}

TABLES: Final[Mapping[str, Table]] = {
    apis.COMPLETIONS: Table({**_OPENAI, **required(PROMPT, "prompt"), **optional(BOOLEAN, "echo")}, open=True),
    apis.CHAT: Table(
        {
            **_OPENAI,
            **optional(INTEGER, "max_completion_tokens min_completion_tokens"),
            **required(evolve(LIST, nested=_MESSAGE), "messages"),
            **optional(LIST, "tools"),
            **optional(BOOLEAN, "echo"),
        },
        open=True,
    ),
    apis.RESPONSES: Table(
        {
            **_SAMPLING,
            **required(_CONTENT, "input"),
            **optional(INTEGER, "max_output_tokens"),
            **optional(STRING, "instructions previous_response_id"),
            **optional(BOOLEAN, "ignore_eos store background"),
        },
        open=True,
    ),
    apis.MESSAGES: Table(
        {
            **_SAMPLING,
            **required(STRING, "model"),
            **required(evolve(LIST, nested=_MESSAGE), "messages"),
            **required(INTEGER, "max_tokens"),
            **optional(_CONTENT, "system"),
            **optional(OBJECT, "thinking metadata"),
            **optional(LIST, "tools stop_sequences"),
        },
        open=True,
    ),
}

LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    **apis.LIMITS,
    apis.CHAT: ("max_completion_tokens", "max_tokens"),
}
"""In a chat the newer name counts, if both are there."""

ASKED: Final[Mapping[str, str]] = {
    apis.COMPLETIONS: "prompt",
    apis.CHAT: "messages",
    apis.RESPONSES: "input",
    apis.MESSAGES: "messages",
}
"""The field that holds what is asked."""
