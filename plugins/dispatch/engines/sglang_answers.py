"""SGLang's answers: whether the context worker did its part, and what of the prompt only it knows."""

import re
from typing import Any, Final

from plugins.dispatch.client import MalformedFault
from plugins.dispatch.engine import Handoff
from plugins.dispatch.engines.answers import gave_up, parts_of
from plugins.dispatch.engines.bodies import parse

CONCERN: Final = re.compile(rb'"(?:bootstrap_\w+|input_token_logprobs)"')
"""What an answer has in it that has to be changed on its way to the client."""

_PROMPT: Final = "input_token_logprobs"
_INTERNAL: Final = "bootstrap_"
_HOLDERS: Final = ("meta_info", "metadata", "response", "message")


def read_context(answer: bytes, *, wants_none: bool = False) -> Handoff:
    """What is left to know of a context worker that has given its KV cache away; the client may want no token.

    Raises:
        MalformedFault: 502, it was stopped: the generation worker would answer from half a KV cache.
    """
    data = parse(answer, "context")
    meta: Any = data.get("meta_info")
    if type(meta) is not dict:
        meta = {}
    reason = gave_up(data) or (gave_up(meta) if meta else None)
    if reason is not None:
        raise MalformedFault(f"it ended for {reason!r}", "the context worker gave up")
    usage = data.get("usage") if data.get("object") == "response" and not wants_none else None
    if isinstance(usage, dict) and usage.get("output_tokens") == 0:
        # the Responses API has no word for it: a request that was stopped is completed, and empty
        raise MalformedFault("it made no token", "the context worker gave up")
    return Handoff({}, notes=meta.get(_PROMPT))


def clean(data: dict[str, Any], handoff: Handoff | None) -> dict[str, Any]:
    """An answer without what is for workers, and with the probabilities of the prompt's tokens in front.

    Of its own part of the prompt, the generation worker knows them by itself.
    """
    for part in parts_of(data, _HOLDERS):
        for name in [name for name in part if name.startswith(_INTERNAL)]:
            del part[name]
    meta, known = data.get("meta_info"), handoff.notes if handoff is not None else None
    if isinstance(meta, dict) and isinstance(known, list) and isinstance(meta.get(_PROMPT), list):
        meta[_PROMPT] = known + meta[_PROMPT]
    return data
