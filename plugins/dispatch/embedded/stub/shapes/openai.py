"""The bodies of OpenAI's completions and chat APIs: whole answers and the chunks of a stream."""

import time
from collections.abc import Iterator, Mapping
from typing import ClassVar
from uuid import uuid4

from attrs import define, field, frozen

from plugins.dispatch.embedded.stub.shapes.base import Choice, Counts, Shape, event
from plugins.dispatch.embedded.stub.text import Piece


@frozen
class Extras:
    """The fields, most of them null, by which one engine's answers differ from another's."""

    body: Mapping[str, object] = field(factory=dict)
    choice: Mapping[str, object] = field(factory=dict)
    message: Mapping[str, object] = field(factory=dict)
    chunk_choice: Mapping[str, object] = field(factory=dict)


@frozen
class Asked:
    """What a request asks of a stream's usage."""

    usage: bool = False
    continuous: bool = False


@define(eq=False)
class OpenAIShape(Shape):
    """The answers of completions and chat; engines override the pieces in which theirs differ."""

    chat: bool
    model: str
    asked: Asked = field(factory=Asked)
    choices: int = 1
    extras: Extras = field(factory=Extras)
    id: str = ""
    created: int = field(init=False, factory=lambda: int(time.time()))
    call_id: str = field(init=False, factory=lambda: f"chatcmpl-tool-{uuid4().hex[:16]}")

    stop_field: ClassVar[str] = "stop_reason"

    def __attrs_post_init__(self) -> None:
        self.id = self.id or f"{self.prefix}-{uuid4().hex}"

    @property
    def finish_with_text(self) -> bool:
        """Whether the finish reason comes with the last text, in place of a chunk of its own."""
        return False

    @property
    def prefix(self) -> str:
        """What the ids of this kind of answer begin with."""
        return "chatcmpl" if self.chat else "cmpl"

    def whole(self, choices: list[Choice], counts: Counts) -> dict[str, object]:
        """Make a whole answer."""
        return {
            **self.head("chat.completion" if self.chat else "text_completion"),
            "choices": [self.choice(index, choice) for index, choice in enumerate(choices)],
            "usage": self.usage(counts),
            **self.extras.body,
        }

    def opening(self, counts: Counts) -> Iterator[bytes]:
        """Make the chunks that open the choices of a chat."""
        if self.chat:
            for index in range(self.choices):
                yield event(self.role_chunk(index, counts))

    def step(self, index: int, piece: Piece, counts: Counts) -> Iterator[bytes]:
        """Make the chunk of a token, and after the last one that of the finish reason."""
        last = piece.finish_reason is not None
        if not (last and piece.token is None and not self.finish_with_text):
            chunk = self.text_chunk(index, piece)
            if self.asked.continuous:
                chunk["usage"] = self.running_usage(counts)
            yield event(chunk)
        if last and not self.finish_with_text:
            yield event(self.finish_chunk(index, piece))

    def closing(self, choices: list[Choice], counts: Counts) -> Iterator[bytes]:
        """Make the chunk without choices that carries the usage, if it was asked for."""
        del choices
        if self.asked.usage:
            yield event({**self.head(self.chunk_object), "choices": [], "usage": self.last_usage(counts)})

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage of a whole answer."""
        return {
            "prompt_tokens": counts.prompt,
            "total_tokens": counts.prompt + counts.completion,
            "completion_tokens": counts.completion,
            "prompt_tokens_details": {"cached_tokens": counts.cached},
        }

    def running_usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage that comes with each chunk."""
        return self.usage(counts)

    def last_usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage in the last chunk."""
        return self.usage(counts)

    def head(self, name: str) -> dict[str, object]:
        """Make the fields that every body begins with."""
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}

    @property
    def chunk_object(self) -> str:
        """The object name of a chunk."""
        return "chat.completion.chunk" if self.chat else "text_completion"

    def choice(self, index: int, choice: Choice) -> dict[str, object]:
        """Make one choice of a whole answer."""
        shown: dict[str, object] = {"text": choice.text}
        if self.chat:
            shown = {
                "message": {"role": "assistant", "content": choice.text, **self.extras.message, **self.calls(choice)}
            }
        return {
            "index": index,
            **shown,
            "logprobs": None,
            "finish_reason": choice.finish_reason,
            self.stop_field: choice.last.stop_reason if choice.last else None,
            **self.extras.choice,
        }

    def role_chunk(self, index: int, counts: Counts) -> dict[str, object]:
        """Make the chunk that opens a choice of a chat."""
        del counts
        return self.chunk(index, {"delta": {"role": "assistant", "content": ""}}, None)

    def text_chunk(self, index: int, piece: Piece) -> dict[str, object]:
        """Make the chunk of one token."""
        shown: dict[str, object] = {"delta": self.delta(piece)} if self.chat else {"text": piece.text}
        return self.chunk(index, shown, piece if self.finish_with_text else None)

    def delta(self, piece: Piece) -> dict[str, object]:
        """Make what a token adds to a message: to its text, or to the one call in it."""
        if piece.tool is not None:
            called: dict[str, object] = {"name": piece.tool}
            return {
                "content": None,
                "tool_calls": [{"id": self.call_id, "type": "function", "index": 0, "function": called}],
            }
        if piece.arguments:
            return {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": piece.arguments}}]}
        return {"content": piece.text} if piece.text or piece.finish_reason != "tool_calls" else {}

    def calls(self, choice: Choice) -> dict[str, object]:
        """Make the field of a whole message that holds its call, if there is one."""
        if choice.tool is None:
            return {}
        called = {"name": choice.tool, "arguments": choice.arguments}
        return {"tool_calls": [{"id": self.call_id, "type": "function", "function": called}]}

    def finish_chunk(self, index: int, piece: Piece) -> dict[str, object]:
        """Make the chunk that says how a choice ended."""
        return self.chunk(index, {"delta": {}} if self.chat else {"text": ""}, piece)

    def chunk(self, index: int, shown: Mapping[str, object], ended: Piece | None) -> dict[str, object]:
        """Make a chunk of one choice."""
        choice = {
            "index": index,
            **shown,
            "logprobs": None,
            "finish_reason": ended.finish_reason if ended else None,
            self.stop_field: ended.stop_reason if ended else None,
            **self.extras.chunk_choice,
        }
        return {**self.head(self.chunk_object), "choices": [choice]}
