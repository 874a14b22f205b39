"""The system prompt of a request, without what changes every turn."""

import re
from typing import Any, Final

from plugins.chat.reading import objects, refusal, text_in

_BILLING: Final = re.compile(r"x-anthropic-billing-header:(?:[ \t]*[\w.-]+=[^;\n]*;)+[ \t]*(?:\n+|\Z)")
"""A line that Claude Code puts first; it differs from turn to turn, and a changed start makes prefix caches useless."""


def system_prompt(system: Any) -> list[str]:
    """The texts of the field `system`, a string or text blocks, without a billing line at the start.

    Raises:
        InvalidRequest: 400, it is something else.
    """
    if system is None:
        return []
    texts = texts_of(system, "system")
    if texts:
        texts[0] = _BILLING.sub("", texts[0], 1) if _BILLING.match(texts[0]) else texts[0]
    return [text for text in texts if text]


def texts_of(content: Any, place: str) -> list[str]:
    """The texts of a string or of text blocks.

    Raises:
        InvalidRequest: 400, it is something else.
    """
    if content.__class__ is str:
        return [content]
    texts = []
    for block, where in objects(content, place):
        if block.get("type") != "text":
            raise refusal(where, "a system prompt is made of blocks of type text")
        texts.append(text_in(block, "text", where))
    return texts
