"""The request fields of SGLang's endpoints; unknown ones are taken and ignored."""

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

GENERATE: Final = "generate"

LARGEST_ROOM: Final = (1 << 63) - 1


def is_room(value: object) -> bool:
    """Whether a value is a room: an exact integer that fits 63 bits, never a number with a fraction."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_ROOM


def _one_or_many(kind: Kind) -> Kind:
    def check(value: object) -> bool:
        return all(item is None or kind.check(item) for item in value) if isinstance(value, list) else kind.check(value)

    return Kind(kind.name, f"{kind.words} or a list of them", check)


_ROOM: Final = Kind("int_type", "a valid integer from 0 to 2^63 - 1", is_room)
_PORT: Final = Kind(
    "int_type", "a valid port", lambda value: isinstance(value, int) and is_room(value) and 0 < value < 65_536
)
_CONTENT: Final = Kind("union_type", "a valid string or list", lambda value: isinstance(value, str | list))
_ROLE: Final = Kind(
    "literal_error",
    "'user', 'system', 'assistant', 'tool', 'function' or 'developer'",
    lambda value: value in ("user", "system", "assistant", "tool", "function", "developer"),
)
_MESSAGE: Final = Table(required(_ROLE, "role"), open=True)

_PAIR: Final[Mapping[str, Kind]] = {
    **optional(_one_or_many(STRING), "bootstrap_host rid"),
    **optional(_one_or_many(_PORT), "bootstrap_port"),
    **optional(_one_or_many(_ROOM), "bootstrap_room"),
    **optional(BOOLEAN, "stream"),
}
_OPENAI: Final[Mapping[str, Kind]] = {
    **_PAIR,
    **optional(STRING, "model user"),
    **optional(INTEGER, "n max_tokens min_tokens seed"),
    **optional(NUMBER, "temperature top_p presence_penalty frequency_penalty"),
    **optional(BOOLEAN, "ignore_eos"),
    **optional(STOP, "stop"),
    **nested(Table(optional(BOOLEAN, "include_usage continuous_usage_stats"), open=True), "stream_options"),
}
_SAMPLING: Final = Table(
    {**optional(INTEGER, "max_new_tokens n"), **optional(STOP, "stop"), **optional(BOOLEAN, "ignore_eos")}, open=True
)

TABLES: Final[Mapping[str, Table]] = {
    apis.COMPLETIONS: Table({**_OPENAI, **required(PROMPT, "prompt")}, open=True),
    apis.CHAT: Table(
        {
            **_OPENAI,
            **optional(INTEGER, "max_completion_tokens"),
            **required(evolve(LIST, nested=_MESSAGE), "messages"),
            **optional(LIST, "tools"),
        },
        open=True,
    ),
    apis.RESPONSES: Table(
        {
            **_PAIR,
            **required(_CONTENT, "input"),
            **optional(STRING, "model instructions"),
            **optional(INTEGER, "max_output_tokens"),
            **optional(NUMBER, "temperature top_p"),
        },
        open=True,
    ),
    apis.MESSAGES: Table(
        {
            **_PAIR,
            **required(STRING, "model"),
            **required(evolve(LIST, nested=_MESSAGE), "messages"),
            **required(INTEGER, "max_tokens"),
            **optional(_CONTENT, "system"),
            **optional(OBJECT, "thinking metadata"),
            **optional(LIST, "tools stop_sequences"),
        },
        open=True,
    ),
    GENERATE: Table(
        {
            **_PAIR,
            **optional(STRING, "text"),
            **optional(TOKEN_IDS, "input_ids"),
            **optional(BOOLEAN, "return_logprob"),
            **nested(_SAMPLING, "sampling_params"),
        },
        open=True,
    ),
}
