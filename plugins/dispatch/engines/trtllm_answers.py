"""TensorRT-LLM's answers: the handoff in a context worker's, and what no client may see."""

import re
import sys
from array import array
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

import orjson

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engine import Final as FinalAnswer
from plugins.dispatch.engine import Handoff
from plugins.dispatch.engines.bodies import parse, parse_around

_PENDING: Final = ("length", "not_finished")
"""Finish reasons of a context worker that leave the rest to a generation worker."""

_NEEDED: Final = ("ctx_request_id", "disagg_request_id")
_USAGE: Final = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details")
_USAGE_NAMES: Final = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "input_tokens_details": "prompt_tokens_details",
}
"""What the Responses API calls them; under its own names a generation worker would not see them."""

_COMPLETIONS: Final = "completions"
_RESPONSES: Final = "responses"

_SAID: Final[Mapping[str, tuple[str, type[Any]]]] = {
    _COMPLETIONS: ("text", str),
    "chat_completions": ("message", dict),
    _RESPONSES: ("output", list),
}
"""Under which name an answer of each API, or each of its choices, has what was said, and of which kind that is."""

_INTERNAL: Final = ("disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64")
_LEAK: Final = re.compile(rb'_(?:(?<="disaggregated_)params|(?<="prompt_)token_ids(?:_b64)?)"\s*:\s*(?!null\b|\s)')
"""Looked for from its first underscore on, as there are fewer of them than of anything before."""

METRICS_EVENT: Final = b"trtllm.perf_metrics"

CONCERN: Final = re.compile(_LEAK.pattern + rb"|_(?<=trtllm\.perf_)metrics")
"""What an event of a stream has in it that may have to be changed on its way to the client."""


def read_context(answer: bytes, *, api: str, unread: bool) -> Handoff | FinalAnswer:
    """What a context worker's answer over an endpoint of that name means: a handoff, or all there is to say.

    With `unread` the handoff may hold token ids as they came, which only JSON can take.

    Raises:
        MalformedFault: 502, it has no handoff, or not all of it.
    """
    data = parse_around("prompt_token_ids", answer, "context") if unread else parse(answer, "context")
    slots: Any = [data] if api == _RESPONSES else data.get("choices")
    for item in slots if type(slots) is list and slots else (None,):
        if not _is_slot(item, api):
            raise _malformed("it has no choices of this API", "is not an answer of this API")
    for number, slot in enumerate(slots):
        _check_handoff(slot, number)
    # One handoff serves the whole request, also with several choices.
    first = slots[0]
    if first.get("finish_reason") not in _PENDING:
        return FinalAnswer(_stripped(data))
    params = {
        **first["disaggregated_params"],
        "request_type": "generation_only",
        "schedule_style": 0,
        "ctx_usage": _counted(data.get("usage")),
    }
    fields = {"disaggregated_params": params, **_prompt_fields(data, api)}
    return Handoff(fields, once=params.get("remote_tail_start") is not None)


def strip_internals(answer: bytes) -> bytes:
    """A generation worker's answer without handoff and token ids; the worker's own bytes if it has none.

    Null fields stay: they say nothing, and are part of the shape that this engine's clients know.

    Raises:
        MalformedFault: 502, it has such fields and is not a JSON object.
    """
    return orjson.dumps(_stripped(parse(answer, "generation"))) if _LEAK.search(answer) else answer


def strip_event(data: bytes) -> bytes:
    """An event's data without handoff and token ids."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    return orjson.dumps(_stripped(value)) if isinstance(value, dict) and _LEAK.search(data) else data


def _counted(usage: object) -> dict[str, Any] | None:
    """The context phase's token counts, which the generation worker adds to its own; under the names of a chat."""
    if not isinstance(usage, dict):
        return None
    if "input_tokens" not in usage:
        return {name: usage[name] for name in _USAGE if name in usage}
    counted = {_USAGE_NAMES.get(name, name): count for name, count in usage.items()}
    details = counted.get("prompt_tokens_details")
    if isinstance(details, dict):
        counted["prompt_tokens_details"] = {"cached_tokens": details.get("cached_tokens") or 0}
    return {name: counted[name] for name in _USAGE if name in counted}


def _prompt_fields(data: dict[str, Any], api: str) -> dict[str, Any]:
    """The prompt as token ids, so that the generation worker sees exactly what the context worker saw."""
    packed, tokens = data.get("prompt_token_ids_b64"), data.get("prompt_token_ids")
    if api != _COMPLETIONS:
        if packed is not None:
            return {"prompt_token_ids_b64": packed}
        return {} if tokens is None else {"prompt_token_ids": tokens}
    if tokens is None and packed is not None:
        tokens = _unpack(packed)
    return {} if tokens is None else {"prompt": tokens}


def _unpack(packed: object) -> list[int]:
    """Token ids out of the base64 of little-endian 32-bit integers."""
    tokens = array("i")
    try:
        tokens.frombytes(b64decode(str(packed), validate=True))
    except ValueError:
        raise _malformed("prompt_token_ids_b64 cannot be decoded", "has token ids that cannot be read") from None
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tolist()


def _check_handoff(choice: dict[str, Any], slot: int) -> None:
    params, reason = choice.get("disaggregated_params"), choice.get("finish_reason")
    if not isinstance(params, dict):
        raise _malformed(f"slot {slot} ended with {reason!r} and without a handoff", "has no handoff")
    for name in _NEEDED if reason in _PENDING else ():
        if params.get(name) is None:
            named = {name: params.get(name) for name in _NEEDED}
            raise _malformed(f"slot {slot} ended with {reason!r} and {named}", "has an incomplete handoff")


def _is_slot(item: object, api: str) -> bool:
    if not isinstance(item, dict) or api not in _SAID:
        return False
    name, kind = _SAID[api]
    said: Any = item.get(name)
    if type(said) is not kind:
        return False
    calls = said.get("tool_calls") if kind is dict else None
    return not calls or (isinstance(calls, list) and all(isinstance(call, dict) for call in calls))


def _stripped(data: dict[str, Any]) -> dict[str, Any]:
    """The answer without what is meant for workers: on the top, in what it wraps up, and in each choice."""
    choices = data.get("choices")
    if isinstance(choices, list):
        plain = [_without_internal(choice) if isinstance(choice, dict) else choice for choice in choices]
        data = {**data, "choices": plain}
    if isinstance(data.get("response"), dict):
        data = {**data, "response": _without_internal(data["response"])}
    return _without_internal(data)


def _without_internal(value: dict[str, Any]) -> dict[str, Any]:
    """A response has a finish reason for the frontend alone."""
    hidden = (*_INTERNAL, "finish_reason") if value.get("object") == "response" else _INTERNAL
    return {name: item for name, item in value.items() if name not in hidden}


def _malformed(detail: str, what: str) -> MalformedFault:
    return MalformedFault(detail, f"the context worker's answer {what}")
