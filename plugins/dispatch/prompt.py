"""What can be known of a request's prompt without a tokenizer: its text, its token ids if it has any, its length."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import define, field

CHARACTERS_A_TOKEN: Final = 5
"""By which a text's tokens are estimated, as in TensorRT-LLM's frontend."""

USUAL_TOKENS: Final = 256
"""Tokens of a prompt, where one number has to stand for all."""

PIECES: Final = 8192
"""Values in a prompt that are looked at; a body of ten megabytes can hold millions of them."""

_END: Final = object()
_DATA_URL: Final = "data:"
_SHOWN: Final = 64


def token_ids(data: Mapping[str, Any]) -> Sequence[int] | None:
    """The token ids of the prompt, if the client sent them; nothing is said of any but the first."""
    for value in (data.get("prompt_token_ids"), data.get("prompt")):
        if isinstance(value, list) and value:
            ids = value[0] if len(value) == 1 and isinstance(value[0], list) else value
            if ids and type(ids[0]) is int:
                return ids
    return None


def pieces(data: Mapping[str, Any]) -> list[str]:
    """The text of the prompt in pieces: a line `role:content` for each message, or the bare text of a completion.

    Of the APIs that it knows of, whatever shape the client gave it. Tools are left out: they are the same for most
    requests of a client.
    """
    text = _Text()
    for name in ("system", "instructions"):
        if data.get(name):
            text.add(f"{name}:")
            text.walk(data[name])
            text.add("\n")
    for message in _messages(data):
        if text.left <= 0:
            break
        if isinstance(message, dict):
            content = message.get("content")
            if isinstance(content, str) and len(message) == 2:
                text.left -= 1
                text.found.append(f"{message.get('role')}:{content}\n")
            else:
                text.add(f"{message.get('role')}:")
                text.walk([item for key, item in message.items() if key != "role"])
                text.add("\n")
        elif isinstance(message, str):
            text.add(message)
    return text.found


def _messages(data: Mapping[str, Any]) -> Sequence[Any]:
    for name in ("messages", "input", "prompt"):
        value = data.get(name)
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and value:
            return value[:PIECES]
    return ()


class Prompt:
    """One prompt, whose text is looked for when it is first asked for; `ids` are token ids, if the client sent them."""

    __slots__ = ("_length", "_pieces", "data", "ids")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.ids = token_ids(data) if "prompt" in data or "prompt_token_ids" in data else None
        self._pieces: Sequence[str] | None = None
        self._length = -1

    @property
    def pieces(self) -> Sequence[str]:
        """The text, in pieces."""
        if self._pieces is None:
            self._pieces = pieces(self.data)
        return self._pieces

    @property
    def length(self) -> int:
        """How many characters the text has."""
        if self._length < 0:
            self._length = sum(map(len, self.pieces))
        return self._length

    @property
    def tokens(self) -> int:
        """How long it is in tokens, at least 1; estimated from its text unless the client sent token ids."""
        return self.length // CHARACTERS_A_TOKEN or 1 if self.ids is None else len(self.ids)

    def text(self, limit: int) -> str:
        """The beginning of the text, no longer than `limit`."""
        if self.length <= limit:
            return "".join(self.pieces)
        parts, length = [], 0
        for piece in self.pieces:
            parts.append(piece if len(piece) <= limit else piece[:limit])
            length += len(piece)
            if length >= limit:
                break
        return "".join(parts)[:limit]


@define(eq=False)
class _Text:
    """Gathers strings; `left` is how many more values it will look at."""

    found: list[str] = field(factory=list, init=False)
    left: int = field(default=PIECES, init=False)

    def add(self, piece: str) -> None:
        """Take one string in."""
        if self.left > 0:
            self.left -= 1
            self.found.append(piece)

    def walk(self, value: Any) -> None:
        """Take in all strings in a value, in order; of a file in the text, no more than tells it from others."""
        stack: list[Iterator[Any]] = [iter((value,))]
        while stack and self.left > 0:
            self.left -= 1
            match next(stack[-1], _END):
                case str(item) if item.startswith(_DATA_URL):
                    self.found.append(f"{len(item)}:{item[:_SHOWN]}{item[-_SHOWN:]}")
                case str(item):
                    self.found.append(item)
                case list(item):
                    stack.append(iter(item))
                case dict(item):
                    stack.append(iter(item.values()))
                case item if item is _END:
                    stack.pop()
                case _:
                    pass
