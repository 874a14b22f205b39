"""Content blocks as events, one after the other, however a worker mixes what belongs into them."""

from hashlib import sha256
from typing import Any, Final, Literal

import orjson
from attrs import define, field

from plugins.messages.answer import call_id, malformed

Kind = Literal["text", "thinking", "tool_use"]

_DELTAS: Final = {
    "text": b'{"type":"text_delta","text":',
    "thinking": b'{"type":"thinking_delta","thinking":',
    "tool_use": b'{"type":"input_json_delta","partial_json":',
}
_STARTS: Final = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


@define(eq=False)
class Block:
    """One block: `pieces` of it that came, of a text only while it waits; `id` and `name` are a tool call's."""

    kind: Kind
    given: Any = None
    id: str = ""
    name: str = ""
    pieces: list[str] = field(factory=list)

    def is_whole(self) -> bool:
        """Whether nothing can follow in it; a tool call ends with its JSON, anything else where another begins."""
        if self.kind != "tool_use":
            return True
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            orjson.loads("".join(self.pieces))
        except orjson.JSONDecodeError:
            return False
        return True


@define(eq=False)
class BlockWriter:
    """Writes `content_block_*` events: a block begins only when the one before it has ended.

    What comes for a later block while a tool call is not whole waits for its turn.
    """

    started: int = field(default=0, init=False)
    has_tools: bool = field(default=False, init=False)
    _written: list[bytes] = field(factory=list, init=False)
    _open: Block | None = field(default=None, init=False)
    _waiting: list[Block] = field(factory=list, init=False)
    _calls: dict[int, Block] = field(factory=dict, init=False)
    _ids: set[str] = field(factory=set, init=False)
    _digest: Any = field(factory=sha256, init=False)

    def take(self) -> bytes:
        """The events written since the last call."""
        written = b"".join(self._written)
        self._written.clear()
        return written

    def say(self, kind: Literal["text", "thinking"], piece: str) -> None:
        """Add to what is being said or thought."""
        block = self._waiting[-1] if self._waiting else self._open
        if block is None or block.kind != kind:
            block = Block(kind)
            self._waiting.append(block)
        self._add(block, piece)

    def call(self, index: int, given: Any, name: str, piece: str) -> None:
        """Add to the tool call that the worker gives this index and, at its first piece at least, an id and a name.

        Raises:
            WorkerRejection: 502, it goes on after its end.
        """
        block = self._calls.get(index)
        anew = block is not None and given and name and given != block.given and block.is_whole()
        if block is None or anew:  # some workers give every call the index 0
            block = self._calls[index] = Block("tool_use", given)
            self._waiting.append(block)
        block.given, block.name = block.given or given, block.name or name
        self._add(block, piece)

    def finish(self) -> None:
        """End what is open and write all that waits.

        Raises:
            WorkerRejection: 502, a tool call never got a name.
        """
        if self._open is None and not self._waiting:
            self._waiting.append(Block("text"))
        while self._waiting:
            if not self._begin():
                raise malformed("the worker called a tool without a name")
        self._end()

    def cut(self) -> None:
        """End what is open although the answer is not whole; but no tool call, which would look ready to be run."""
        if self._open is not None and self._open.kind != "tool_use":
            self._end()

    def _add(self, block: Block, piece: str) -> None:
        if block is self._open:
            if block.kind == "tool_use":
                block.pieces.append(piece)
            self._delta(block, piece)
        elif block in self._waiting:
            block.pieces.append(piece)
        elif piece.strip():
            raise malformed("the worker went on with a tool call after its end")
        while self._waiting and (self._open is None or self._open.is_whole()) and self._begin():
            pass

    def _begin(self) -> bool:
        """Begin the next block that waits, unless that is a tool call whose name has not come yet."""
        block = self._waiting[0]
        if block.kind == "tool_use" and not block.name:
            return False
        self._end()
        self._open = self._waiting.pop(0)
        start: Any = _STARTS.get(block.kind)
        if start is None:
            block.id, self.has_tools = call_id(block.given, self._ids), True
            start = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
        self._write("content_block_start", b',"content_block":' + orjson.dumps(start))
        self.started += 1
        self._digest = sha256()
        self._delta(block, "".join(block.pieces))
        return True

    def _delta(self, block: Block, piece: str) -> None:
        if piece:
            if block.kind == "thinking":
                self._digest.update(piece.encode())
            self._write("content_block_delta", b',"delta":' + _DELTAS[block.kind] + orjson.dumps(piece) + b"}", 1)

    def _end(self) -> None:
        if self._open is not None:
            if self._open.kind == "thinking":
                delta = b',"delta":{"type":"signature_delta","signature":"%b"}' % self._digest.hexdigest().encode()
                self._write("content_block_delta", delta, 1)
            self._write("content_block_stop", b"", 1)
            self._open = None

    def _write(self, name: str, rest: bytes, behind: int = 0) -> None:
        """Write an event of the block that begins, or of the one `behind` it."""
        kind = name.encode()
        index = self.started - behind
        self._written.append(b'event: %b\ndata: {"type":"%b","index":%d%b}\n\n' % (kind, kind, index, rest))
