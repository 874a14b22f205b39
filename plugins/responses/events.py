"""The events of a Responses stream."""

from collections.abc import Callable
from typing import Any, Final

import orjson
from attrs import define, field

from plugins.chat.answer import call_id, new_id
from plugins.chat.reading import Data
from plugins.chat.sequence import Block
from plugins.responses.answer import (
    Namespaces,
    call_item,
    ends_of,
    message_item,
    named,
    reasoning_item,
    response_head,
    text_part,
    usage_of,
)

_PREFIXES: Final = {"text": "msg_", "thinking": "rs_", "call": "fc_"}
_KINDS: Final = {"text": b"output_text", "thinking": b"reasoning_text", "call": b"function_call_arguments"}
_ITEMS: Final[dict[str, Callable[[str, str, str | None], Data]]] = {"text": message_item, "thinking": reasoning_item}


@define(eq=False)
class ResponseEvents:
    """Tells one answer to `request`; `model` is the client's name for it. Ids in the stream are those of the end."""

    _request: Data
    _model: str
    _namespaces: Namespaces
    _response: Data = field(factory=dict, init=False)
    _number: int = field(default=0, init=False)
    _status: str = field(default="completed", init=False)
    _item: str = field(default="", init=False)
    _call: str = field(default="", init=False)
    _said: list[str] = field(factory=list, init=False)
    _place: bytes = field(default=b"", init=False)
    _output: list[Data] = field(factory=list, init=False)
    _calls: set[str] = field(factory=set, init=False)

    def head(self, _usage: Any) -> bytes:
        """Write `response.created` and `response.in_progress`."""
        self._response = response_head(self._request, self._model)
        begun = {"response": self._response}
        return self._event("response.created", begun) + self._event("response.in_progress", begun)

    def begin(self, block: Block) -> bytes:
        """Write `response.output_item.added`, and `response.content_part.added` where an item has parts."""
        self._item, self._said = new_id(_PREFIXES[block.kind]), []
        place: Data = {"item_id": self._item, "output_index": block.number}
        if block.kind == "call":
            self._call = call_id(block.given, self._calls, "call_")
        else:
            place["content_index"] = 0
        self._place = orjson.dumps(place)[1:-1]
        added = {"output_index": block.number, "item": self._make(block, "in_progress", None)}
        told = self._event("response.output_item.added", added)
        if block.kind == "call":
            return told
        return told + self._event("response.content_part.added", place | {"part": _part(block, "")})

    def add(self, block: Block, piece: str) -> bytes:
        """Write the delta."""
        self._said.append(piece)
        number, self._number = self._number, self._number + 1
        kind = _KINDS[block.kind]
        rest = b',"logprobs":[]' if block.kind == "text" else b""
        return (
            b'event: response.%b.delta\ndata: {"type":"response.%b.delta","sequence_number":%d,%b,"delta":%b%b}\n\n'
            % (kind, kind, number, self._place, orjson.dumps(piece), rest)
        )  # fmt: skip

    def end(self, block: Block) -> bytes:
        """Write what ends the item and its part."""
        text = "".join(self._said)
        item = self._make(block, self._status, text)
        self._output.append(item)
        place: Data = orjson.loads(b"{%b}" % self._place)
        match block.kind:
            case "call":
                whole = {"arguments": text, "name": item["name"]}
            case "text":
                whole = {"text": text, "logprobs": []}
            case _:
                whole = {"text": text}
        told = self._event(f"response.{_KINDS[block.kind].decode()}.done", place | whole)
        if block.kind != "call":
            told += self._event("response.content_part.done", place | {"part": _part(block, text)})
        return told + self._event("response.output_item.done", {"output_index": block.number, "item": item})

    def cut(self, _block: Block) -> bytes:
        """Nothing: `response.failed` ends all that is open."""
        return b""

    def check(self, end: Data) -> None:
        """See that it is an end; what is open then is not complete where the answer is not."""
        self._status = ends_of(end)["status"]

    def tail(self, end: Data, usage: Any) -> bytes:
        """Write `response.completed` or `response.incomplete`."""
        ended = self._response | ends_of(end) | {"output": self._output, "usage": usage_of(usage)}
        return self._event(f"response.{ended['status']}", {"response": ended})

    def _make(self, block: Block, status: str, text: str | None) -> Data:
        make = _ITEMS.get(block.kind)
        if make is not None:
            return make(self._item, status, text)
        return call_item(self._item, status, self._call, named(block.name, self._namespaces), text or "")

    def _event(self, name: str, data: Data) -> bytes:
        number, self._number = self._number, self._number + 1
        told = orjson.dumps({"type": name, "sequence_number": number, **data})
        return b"event: %b\ndata: %b\n\n" % (name.encode(), told)


def _part(block: Block, text: str) -> Data:
    return text_part(text) if block.kind == "text" else {"type": "reasoning_text", "text": text}
