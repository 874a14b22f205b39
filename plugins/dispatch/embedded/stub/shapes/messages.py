"""The bodies of Anthropic's messages API: whole answers and the events of a stream."""

from collections.abc import Iterator, Mapping
from uuid import uuid4

import orjson
from attrs import define, field

from plugins.dispatch.embedded.stub.shapes.base import Choice, Counts, Shape, named_event
from plugins.dispatch.embedded.stub.text import Piece

_REASONS = {"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use"}


@define(eq=False)
class MessagesShape(Shape):
    """The answers of the messages API; engines override what they tell of the usage."""

    model: str
    id: str = ""
    call_id: str = field(init=False, factory=lambda: f"chatcmpl-tool-{uuid4().hex[:16]}")
    _begun: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.id = self.id or f"msg_{uuid4().hex}"

    def whole(self, choices: list[Choice], counts: Counts) -> dict[str, object]:
        """Make a whole answer."""
        return {
            **self._head(),
            "content": [self._content(choices[0])],
            "model": self.model,
            "stop_reason": stop_reason(choices[0].last),
            "usage": self.usage(counts),
        }

    def opening(self, counts: Counts) -> Iterator[bytes]:
        """Make the event that opens the message."""
        message = {**self._head(), "content": [], "model": self.model, **self.opening_fields()}
        message["usage"] = {"input_tokens": counts.prompt, "output_tokens": 0}
        yield named_event("message_start", {"type": "message_start", "message": message})

    def step(self, index: int, piece: Piece, counts: Counts) -> Iterator[bytes]:
        """Make the event of a token, and before the first one that of its block."""
        del counts
        yield from self._begin_block(piece.tool)
        if piece.text or piece.arguments:
            delta = {"type": "text_delta", "text": piece.text}
            if piece.arguments:
                delta = {"type": "input_json_delta", "partial_json": piece.arguments}
            yield named_event("content_block_delta", {"type": "content_block_delta", "delta": delta, "index": index})

    def closing(self, choices: list[Choice], counts: Counts) -> Iterator[bytes]:
        """Make the events that close the block and tell how the message ended."""
        yield from self._begin_block()
        yield named_event("content_block_stop", {"type": "content_block_stop", "index": 0})
        delta = {"stop_reason": stop_reason(choices[0].last), **self.closing_fields(choices[0])}
        ended = {"type": "message_delta", "delta": delta, "usage": self.last_usage(counts), **self.extra}
        yield named_event("message_delta", ended)

    def end(self, choices: list[Choice], counts: Counts) -> bytes:
        """Make the last event."""
        del choices, counts
        return named_event("message_stop", {"type": "message_stop"})

    def failure(self, payload: object) -> bytes | None:
        """Make the event of an error."""
        return named_event("error", payload)

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage of a whole answer."""
        return {"input_tokens": counts.prompt, "output_tokens": counts.completion}

    def last_usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage at the end of a stream."""
        return {"output_tokens": counts.completion}

    def opening_fields(self) -> Mapping[str, object]:
        """Make the fields, most of them null, that the message of the first event has besides its own."""
        return {}

    def closing_fields(self, choice: Choice) -> Mapping[str, object]:
        """Make the fields that the delta of the last event but one has besides its own."""
        del choice
        return {}

    def _head(self) -> dict[str, object]:
        return {"id": self.id, "type": "message", "role": "assistant"}

    def _content(self, choice: Choice) -> dict[str, object]:
        if choice.tool is None:
            return {"type": "text", "text": choice.text}
        # a call that the limit has cut is no JSON
        given = orjson.loads(choice.arguments) if choice.finish_reason == "tool_calls" else {}
        return {"type": "tool_use", "id": self.call_id, "name": choice.tool, "input": given}

    def _begin_block(self, tool: str | None = None) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            block = self._content(Choice(tool=tool))
            yield named_event(
                "content_block_start", {"type": "content_block_start", "content_block": block, "index": 0}
            )


def stop_reason(piece: Piece | None) -> str | None:
    """Name the way in which an answer ended as the messages API does."""
    if piece is None or piece.finish_reason is None:
        return None
    if piece.stop_reason is not None:
        return "stop_sequence"
    return _REASONS.get(piece.finish_reason, piece.finish_reason)


def anthropic_error(kind: str, message: str) -> dict[str, object]:
    """Make an error in Anthropic's envelope."""
    return {"type": "error", "error": {"type": kind, "message": message}}
