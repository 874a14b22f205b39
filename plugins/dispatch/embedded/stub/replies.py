"""The bodies of the OpenAI API: whole answers and the chunks of a stream."""

import time
from collections.abc import Mapping
from uuid import uuid4

import orjson
from attrs import define, field, frozen

from plugins.dispatch.embedded.stub.text import Piece


@frozen
class Extras:
    """The fields, most of them null, by which one engine's answers differ from another's."""

    body: Mapping[str, object] = field(factory=dict)
    choice: Mapping[str, object] = field(factory=dict)
    message: Mapping[str, object] = field(factory=dict)
    chunk_choice: Mapping[str, object] = field(factory=dict)


@define
class Choice:
    """One choice of a whole answer while it grows."""

    text: str = ""
    tokens: int = 0
    last: Piece | None = None

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.tokens += 1
        self.last = piece


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> dict[str, object]:
    """Make a usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def event(payload: object) -> bytes:
    """Frame a payload as one server-sent event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


@frozen(eq=False)
class ReplyShape:
    """Makes the bodies of one answer, which share an id and a time."""

    chat: bool
    model: str
    extras: Extras = field(factory=Extras)
    id: str = field(init=False)
    created: int = field(init=False, factory=lambda: int(time.time()))

    def __attrs_post_init__(self) -> None:
        prefix = "chatcmpl" if self.chat else "cmpl"
        object.__setattr__(self, "id", f"{prefix}-{uuid4().hex}")

    def whole(
        self, choices: list[Choice], counted: object, choice_fields: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Make a whole answer; `choice_fields` are put into each choice."""
        return {
            **self._head("chat.completion" if self.chat else "text_completion"),
            "choices": [
                self._choice(index, choice) | dict(choice_fields or {}) for index, choice in enumerate(choices)
            ],
            "usage": counted,
            **self.extras.body,
        }

    def role_chunk(self, index: int) -> dict[str, object]:
        """Make the chunk that opens a choice of a chat."""
        return self._chunk(index, {"delta": {"role": "assistant", "content": ""}}, None, None)

    def text_chunk(self, index: int, text: str) -> dict[str, object]:
        """Make the chunk of one token."""
        shown: dict[str, object] = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._chunk(index, shown, None, None)

    def finish_chunk(self, index: int, piece: Piece) -> dict[str, object]:
        """Make the chunk that says how a choice ended."""
        shown: dict[str, object] = {"delta": {}} if self.chat else {"text": ""}
        return self._chunk(index, shown, piece.finish_reason, piece.stop_reason)

    def usage_chunk(self, counted: object) -> dict[str, object]:
        """Make the chunk without choices that carries the usage."""
        return {**self._head(self._chunk_object), "choices": [], "usage": counted}

    @property
    def _chunk_object(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, name: str) -> dict[str, object]:
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}

    def _choice(self, index: int, choice: Choice) -> dict[str, object]:
        shown: dict[str, object] = {"text": choice.text}
        if self.chat:
            shown = {"message": {"role": "assistant", "content": choice.text, **self.extras.message}}
        return {
            "index": index,
            **shown,
            "logprobs": None,
            "finish_reason": choice.last.finish_reason if choice.last else None,
            "stop_reason": choice.last.stop_reason if choice.last else None,
            **self.extras.choice,
        }

    def _chunk(
        self, index: int, shown: Mapping[str, object], finish: str | None, stop: str | None
    ) -> dict[str, object]:
        choice = {
            "index": index,
            **shown,
            "logprobs": None,
            "finish_reason": finish,
            "stop_reason": stop,
            **self.extras.chunk_choice,
        }
        return {**self._head(self._chunk_object), "choices": [choice]}
