"""What a prompt asks for by marker, in place of words at random: a text, or a call of a tool.

`[says TEXT]` is answered with this text and an end. `[calls TOOL {ARGUMENTS}]` is answered with this call, if the
tool is offered and nothing in the prompt is the result of a call yet.
"""

import re
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from plugins.dispatch.embedded.stub.text import Piece, word_token

_SAYS: Final = re.compile(r"\[says ([^\]]+)\]")
_CALLS: Final = re.compile(r"\[calls (\S+) (\{[^{}]*\})\]")
_RESULT: Final = re.compile(r'"(?:call|tool_call|tool_use)_id":')


@frozen
class Script:
    """What is to be said: a text, or a tool with the text of its arguments."""

    text: str = ""
    tool: str | None = None

    def pieces(self, limit: int) -> Iterator[Piece]:
        """Yield the answer, token by token; one more token ends it, if the limit allows."""
        steps = [part for part in re.split(r"(?<=\s)", self.text) if part]
        if self.tool is not None:
            steps.insert(0, self.tool)
        for position, step in enumerate(steps[:limit]):
            cut = "length" if position == limit - 1 else None
            if self.tool is None:
                yield Piece(word_token(step), step, cut)
            elif position:
                yield Piece(word_token(step), "", cut, arguments=step)
            else:
                yield Piece(word_token(step), "", cut, tool=step)
        if len(steps) < limit:
            yield Piece(word_token(""), "", "stop" if self.tool is None else "tool_calls")


def read_script(prompt: str) -> Script | None:
    """Find what a prompt asks for; the last marker of a kind counts."""
    calls, says = _CALLS.findall(prompt), _SAYS.findall(prompt)
    if calls and not _RESULT.search(prompt):
        tool, arguments = calls[-1]
        if f'"name":"{tool}"' in prompt:
            return Script(arguments, tool)
    return Script(says[-1]) if says else None
