"""Blocks of an answer one after the other, however a worker mixes what belongs into them."""

from typing import Any, Literal, Protocol

import orjson
from attrs import define, field

from plugins.chat.answer import malformed

Kind = Literal["text", "thinking", "call"]


@define(eq=False)
class Block:
    """A text, a thought or a tool call: `number` counts them from 0, `given` and `name` are a call's.

    `pieces` are kept of a call, and of any other block while it waits for its turn.
    """

    kind: Kind
    given: Any = None
    name: str = ""
    number: int = -1
    pieces: list[str] = field(factory=list)

    def is_whole(self) -> bool:
        """Whether nothing can follow in it; a tool call ends with its JSON, anything else where another begins."""
        if self.kind != "call":
            return True
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            orjson.loads("".join(self.pieces))
        except orjson.JSONDecodeError:
            return False
        return True


class Teller(Protocol):
    """Says blocks as events of one API, each call as bytes."""

    def begin(self, block: Block) -> bytes:
        """A block begins."""
        ...

    def add(self, block: Block, piece: str) -> bytes:
        """It goes on; the piece is not empty."""
        ...

    def end(self, block: Block) -> bytes:
        """It ends."""
        ...

    def cut(self, block: Block) -> bytes:
        """The answer ends although the block is not whole."""
        ...


@define(eq=False)
class Sequence:
    """Tells blocks strictly one after the other: what comes for a later one while a call is not whole waits."""

    _teller: Teller
    count: int = field(default=0, init=False)
    _told: list[bytes] = field(factory=list, init=False)
    _open: Block | None = field(default=None, init=False)
    _waiting: list[Block] = field(factory=list, init=False)
    _calls: dict[int, Block] = field(factory=dict, init=False)

    def take(self) -> bytes:
        """The events told since the last call."""
        told = b"".join(self._told)
        self._told.clear()
        return told

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
            block = self._calls[index] = Block("call", given)
            self._waiting.append(block)
        block.given, block.name = block.given or given, block.name or name
        self._add(block, piece)

    def finish(self, *, empty: bool = False) -> None:
        """End what is open and tell all that waits; with `empty` there is at least a text without content.

        Raises:
            WorkerRejection: 502, a tool call never got a name.
        """
        if empty and self._open is None and not self._waiting:
            self._waiting.append(Block("text"))
        while self._waiting:
            if not self._begin():
                raise malformed("the worker called a tool without a name")
        self._end()

    def cut(self) -> None:
        """Give up what is open, as the answer will not be whole."""
        if self._open is not None:
            self._told.append(self._teller.cut(self._open))
            self._open = None

    def _add(self, block: Block, piece: str) -> None:
        if block is self._open:
            if block.kind == "call":
                block.pieces.append(piece)
            if piece:
                self._told.append(self._teller.add(block, piece))
        elif block in self._waiting:
            block.pieces.append(piece)
        elif piece.strip():
            raise malformed("the worker went on with a tool call after its end")
        while self._waiting and (self._open is None or self._open.is_whole()) and self._begin():
            pass

    def _begin(self) -> bool:
        """Begin the next block that waits, unless that is a tool call whose name has not come yet."""
        block = self._waiting[0]
        if block.kind == "call" and not block.name:
            return False
        self._end()
        self._open = self._waiting.pop(0)
        block.number = self.count
        self.count += 1
        self._told.append(self._teller.begin(block))
        if piece := "".join(block.pieces):
            self._told.append(self._teller.add(block, piece))
        return True

    def _end(self) -> None:
        if self._open is not None:
            self._told.append(self._teller.end(self._open))
            self._open = None
