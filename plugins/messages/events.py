"""The events of a Messages stream."""

from collections.abc import Container
from hashlib import sha256
from typing import Any, Final

import orjson
from attrs import define, field

from plugins.chat.answer import call_id
from plugins.chat.reading import Data
from plugins.chat.sequence import Block
from plugins.messages.answer import message_head, stop_of, usage_of

_DELTAS: Final = {
    "text": b'{"type":"text_delta","text":',
    "thinking": b'{"type":"thinking_delta","thinking":',
    "call": b'{"type":"input_json_delta","partial_json":',
}
_STARTS: Final[dict[str, Data]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


@define(eq=False)
class MessageEvents:
    """Tells one answer; `model` is the client's name for it, `stops` its stop sequences."""

    _model: str
    _stops: Container[str]
    _ids: set[str] = field(factory=set, init=False)
    _digest: Any = field(factory=sha256, init=False)

    def head(self, usage: Any) -> bytes:
        """Write `message_start`."""
        return _event(b"message_start", {"message": message_head(self._model, usage_of(usage, output=False))})

    def begin(self, block: Block) -> bytes:
        """Write `content_block_start`."""
        start = _STARTS.get(block.kind)
        if start is None:
            given = call_id(block.given, self._ids, "toolu_")
            start = {"type": "tool_use", "id": given, "name": block.name, "input": {}}
        self._digest = sha256()
        return _event(b"content_block_start", {"index": block.number, "content_block": start})

    def add(self, block: Block, piece: str) -> bytes:
        """Write `content_block_delta`."""
        if block.kind == "thinking":
            self._digest.update(piece.encode())
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%b%b}}\n\n'
            % (block.number, _DELTAS[block.kind], orjson.dumps(piece))
        )  # fmt: skip

    def end(self, block: Block) -> bytes:
        """Write `content_block_stop`, after the signature of what was thought."""
        stop = _event(b"content_block_stop", {"index": block.number})
        if block.kind != "thinking":
            return stop
        delta = {"type": "signature_delta", "signature": self._digest.hexdigest()}
        return _event(b"content_block_delta", {"index": block.number, "delta": delta}) + stop

    def cut(self, block: Block) -> bytes:
        """End it, but no tool call: that would look ready to be run."""
        return b"" if block.kind == "call" else self.end(block)

    def check(self, end: Data) -> None:
        """See that there is a reason to stop."""
        stop_of(end, self._stops, tools=False)

    def tail(self, end: Data, usage: Any) -> bytes:
        """Write `message_delta` and `message_stop`."""
        reason, stop = stop_of(end, self._stops, tools=bool(self._ids))
        ends = {"delta": {"stop_reason": reason, "stop_sequence": stop}, "usage": usage_of(usage)}
        return _event(b"message_delta", ends) + _event(b"message_stop", {})


def _event(name: bytes, data: Data) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, orjson.dumps({"type": name.decode(), **data}))
