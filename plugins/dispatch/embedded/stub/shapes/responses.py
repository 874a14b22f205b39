"""The bodies of OpenAI's Responses API: whole answers and the events of a stream."""

import time
from collections.abc import Iterator, Mapping
from typing import ClassVar
from uuid import uuid4

from attrs import define, field

from plugins.dispatch.embedded.stub.shapes.base import Choice, Counts, Shape, named_event
from plugins.dispatch.embedded.stub.text import Piece


@define(eq=False)
class ResponsesShape(Shape):
    """The answers of the Responses API; engines override the fields that theirs have besides the common ones.

    `told` are fields of the request that the answer repeats.
    """

    model: str
    limit: int
    told: Mapping[str, object] = field(factory=dict)
    id: str = field(init=False, factory=lambda: f"resp_{uuid4().hex}")
    item_id: str = field(init=False, factory=lambda: f"msg_{uuid4().hex}")
    call_id: str = field(init=False, factory=lambda: f"chatcmpl-tool-{uuid4().hex[:16]}")
    call_item_id: str = field(init=False, factory=lambda: f"fc_{uuid4().hex[:16]}")
    created: int = field(init=False, factory=lambda: int(time.time()))
    _sequence: int = field(default=0, init=False)
    _begun: bool = field(default=False, init=False)

    phase: ClassVar[str | None] = None
    cut_event: ClassVar[str] = "response.incomplete"
    """The last event of an answer that its limit has cut."""

    def whole(self, choices: list[Choice], counts: Counts) -> dict[str, object]:
        """Make a whole answer."""
        choice = choices[0]
        cut = choice.finish_reason == "length"
        return {
            **self._response("incomplete" if cut else "completed", [self._whole_item(choice)], self.usage(counts)),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            **self.extra,
        }

    def opening(self, counts: Counts) -> Iterator[bytes]:
        """Make the events before the first token."""
        del counts
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._response("in_progress", [], None))

    def step(self, index: int, piece: Piece, counts: Counts) -> Iterator[bytes]:
        """Make the event of a token, and before the first one those of its item and part."""
        del index, counts
        yield from self._begin_item(piece.tool)
        if piece.arguments:
            yield self._event("response.function_call_arguments.delta", **self._call_place(), delta=piece.arguments)
        if piece.text:
            yield self._event("response.output_text.delta", **self._place(), delta=piece.text, logprobs=[])

    def closing(self, choices: list[Choice], counts: Counts) -> Iterator[bytes]:
        """Make the events that close the part and the item."""
        del counts
        yield from self._begin_item(None)
        choice, text = choices[0], choices[0].text
        if choice.tool is None:
            yield self._event("response.output_text.done", **self._place(), text=text, logprobs=[])
            yield self._event("response.content_part.done", **self._place(), part=_part(text))
        else:
            given = {"name": choice.tool, "arguments": choice.arguments}
            yield self._event("response.function_call_arguments.done", **self._call_place(), **given)
        yield self._event("response.output_item.done", output_index=0, item=self._whole_item(choice))

    def end(self, choices: list[Choice], counts: Counts) -> bytes:
        """Make the event with the whole answer in it."""
        whole = self.whole(choices, counts)
        name = self.cut_event if whole["status"] == "incomplete" else "response.completed"
        return self._event(name, response=whole)

    def failure(self, payload: object) -> bytes | None:
        """Make the event of an error."""
        error = payload.get("error", payload) if isinstance(payload, dict) else {}
        said = {"code": error.get("type"), "message": error.get("message"), "param": None}
        return self._event("error", **said)

    def fields(self) -> Mapping[str, object]:
        """Make the fields that a response has besides the common ones."""
        return {}

    def usage(self, counts: Counts) -> dict[str, object]:
        """Make the usage."""
        return {
            "input_tokens": counts.prompt,
            "input_tokens_details": {"cached_tokens": counts.cached},
            "output_tokens": counts.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts.prompt + counts.completion,
        }

    def empty_part(self) -> dict[str, object]:
        """Make the part that the first text is added to."""
        return _part("")

    def _response(self, status: str, output: list[object], usage: object) -> dict[str, object]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "model": self.model,
            "output": output,
            "status": status,
            "usage": usage,
            "max_output_tokens": self.limit,
            "incomplete_details": None,
            **self.fields(),
            **self.told,
        }

    def _item(self, text: str | None) -> dict[str, object]:
        return {
            "id": self.item_id,
            "content": [] if text is None else [_part(text)],
            "role": "assistant",
            "status": "in_progress" if text is None else "completed",
            "type": "message",
            "phase": self.phase,
        }

    def _whole_item(self, choice: Choice) -> dict[str, object]:
        return self._item(choice.text) if choice.tool is None else self._call(choice.tool, choice.arguments)

    def _call(self, tool: str, arguments: str, status: str = "completed") -> dict[str, object]:
        return {
            "arguments": arguments,
            "call_id": self.call_id,
            "name": tool,
            "type": "function_call",
            "id": self.call_item_id,
            "status": status,
        }

    def _begin_item(self, tool: str | None) -> Iterator[bytes]:
        if self._begun:
            return
        self._begun = True
        if tool is None:
            yield self._event("response.output_item.added", output_index=0, item=self._item(None))
            yield self._event("response.content_part.added", **self._place(), part=self.empty_part())
        else:
            item = self._call(tool, "", "in_progress")
            yield self._event("response.output_item.added", output_index=0, item=item)

    def _place(self) -> dict[str, object]:
        return {"content_index": 0, "item_id": self.item_id, "output_index": 0}

    def _call_place(self) -> dict[str, object]:
        return {"item_id": self.call_item_id, "output_index": 0}

    def _event(self, name: str, /, **fields: object) -> bytes:
        made = named_event(name, {"type": name, **fields, "sequence_number": self._sequence})
        self._sequence += 1
        return made


def _part(text: str) -> dict[str, object]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
