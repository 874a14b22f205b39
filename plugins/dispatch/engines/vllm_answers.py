"""vLLM's answers: the handoff in a context worker's, and what no client may see."""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
from attrs import define

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engine import Handoff, Request
from plugins.dispatch.engines.answers import endings, gave_up, parts_of
from plugins.dispatch.engines.bodies import append, parse, parse_around, raw_member

PARAMS: Final = "kv_transfer_params"
_PARAMS: Final = PARAMS.encode()

CONCERN: Final = re.compile(
    rb's"(?:(?:(?<="[ek][cv]_transfer_params")|(?<="prompt_token_ids"))\s*:\s*(?!null\b|\s)'
    rb'|(?<="cached_tokens")|(?<="cache_read_input_tokens"))'
)
"""What an answer has in it that has to be changed on its way to the client.

By the end of a name, as all of these names end alike: fewer places are looked at than have a quotation mark.
"""

_HIDDEN: Final = (PARAMS, "ec_transfer_params")
_IDS: Final = "prompt_token_ids"
_WHERE: Final = ("remote_engine_id", "remote_host", "remote_port")
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")
_COUNTS: Final = ("cached_tokens", "created_cache_tokens", "cache_write_tokens")
_MESSAGES_COUNTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Those of the messages API, which belong together: what was read from the cache is no input."""


@define(eq=False)
class Notes:
    """What the engine has to know of a context worker's answer: its handoff as the member of a body, and its usage.

    `usage` is None where no context worker has answered.
    """

    member: bytes = b"{}"
    usage: Any = None


def read_relayed(answer: bytes, *, lease: float, reuse: bool) -> Handoff:
    """The handoff in a context worker's answer, bit for bit as it came.

    Without one the generation worker does both phases: the context worker has no connector, or found no reason
    to hold anything.

    Raises:
        MalformedFault: 502, the answer cannot be used. A handoff that does not say where the KV cache is would end
            the generation worker.
    """
    data = _read(answer, reuse=reuse)
    params = data.get(PARAMS)
    if not params:
        return Handoff({}, complete=False, reusable=True, notes=Notes())
    for name in _WHERE:
        if type(params) is not dict or params.get(name) in (None, ""):
            missing = f"{PARAMS} lacks one of {', '.join(_WHERE)}"
            raise MalformedFault(missing, "the context worker's handoff is incomplete")
    raw = raw_member(answer, PARAMS, params)
    if reuse and isinstance(data.get(_IDS), list | orjson.Fragment) and (ids := data[_IDS]):
        raw = append(raw, orjson.dumps({_IDS: ids}))
    notes = Notes(b'{"%b":%b}' % (_PARAMS, raw), data.get("usage") or {})
    return Handoff({PARAMS: params}, lifetime=lease, notes=notes)


def read_shared(answer: bytes) -> Handoff:
    """The handoff of a context worker whose KV cache is found by the prompt itself."""
    return Handoff({}, reusable=True, notes=Notes(usage=_read(answer).get("usage") or {}))


def read_paired(answer: bytes) -> Handoff:
    """What is left to know of a context worker that has given its KV cache away.

    Raises:
        MalformedFault: 502, it has not: it gives away only what ended for its length.
    """
    data = _read(answer)
    reasons = set(endings(data))
    if reasons - {"length"}:
        raise MalformedFault(f"it ended for {reasons}", "the context worker has dropped the handoff")
    return Handoff({}, notes=Notes(usage=data.get("usage") or {}))


def clean(data: dict[str, Any], request: Request, handoff: Handoff | None) -> None:
    """Take out what is for workers, and put in how much of the prompt the context worker had cached.

    To a generation worker, all that it fetched looks as if it had been cached.
    """
    hidden = _HIDDEN if request.payload.data.get("return_token_ids") is True else (*_HIDDEN, _IDS)
    parts = parts_of(data)
    for part in parts:
        for name in hidden:
            if part.get(name) is not None:
                del part[name]
    notes = handoff.notes if handoff is not None else None
    if isinstance(notes, Notes) and notes.usage is not None:
        counts = _counts(notes.usage)
        for part in parts:
            _put_counts(part.get("usage"), counts)


def _read(answer: bytes, *, reuse: bool = False) -> dict[str, Any]:
    data = parse_around(_IDS, answer, "context") if reuse else parse(answer, "context")
    reason = gave_up(data)
    if reason is not None:
        raise MalformedFault(f"it ended for {reason!r}", "the context worker gave up")
    return data


def _counts(usage: object) -> dict[str, int]:
    """How much of the prompt was cached, under each name that the worker has for it; what it does not say is none."""
    found = dict.fromkeys(_COUNTS, 0)
    for place in _places(usage):
        found.update({name: place[name] for name in _names(place) if type(place.get(name)) is int})
    return found


def _put_counts(usage: object, counts: Mapping[str, int]) -> None:
    for place in _places(usage):
        place.update({name: counts[name] for name in _names(place) if name in counts and type(place.get(name)) is int})


def _names(place: Mapping[str, Any]) -> tuple[str, ...]:
    return _MESSAGES_COUNTS if "cache_read_input_tokens" in place else _COUNTS


def _places(usage: object) -> list[dict[str, Any]]:
    if not isinstance(usage, dict):
        return []
    return [place for place in (usage, *map(usage.get, _DETAILS)) if isinstance(place, dict)]
