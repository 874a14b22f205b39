"""What the answers of all APIs have in common: their counts, their choices, and the order of their events."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import orjson
from attrs import define, field, frozen

from plugins.dispatch.embedded.stub.text import Piece

DONE = b"data: [DONE]\n\n"


@frozen
class Counts:
    """The tokens of a request: `cached` ones of the prompt were there before, `created` ones are kept for others."""

    prompt: int
    completion: int
    cached: int = 0
    created: int = 0


@define
class Choice:
    """One choice of an answer while it grows."""

    text: str = ""
    tokens: list[int] = field(factory=list)
    last: Piece | None = None
    tool: str | None = None
    arguments: str = ""

    @property
    def finish_reason(self) -> str | None:
        """How the choice ended, if it did."""
        return self.last.finish_reason if self.last else None

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.tool = self.tool or piece.tool
        self.arguments += piece.arguments
        if piece.token is not None:
            self.tokens.append(piece.token)
        self.last = piece


class Shape(ABC):
    """Makes the body of one answer, or the events of its stream in their order: opening, steps, closing, end.

    `extra` are fields that the end of a stream gets besides its own.
    """

    extra: Mapping[str, object] = MappingProxyType({})

    @abstractmethod
    def whole(self, choices: list[Choice], counts: Counts) -> dict[str, object]:
        """Make a whole answer."""

    def opening(self, counts: Counts) -> Iterator[bytes]:
        """Make the events before the first token; no token is there yet to be counted."""
        del counts
        yield from ()

    @abstractmethod
    def step(self, index: int, piece: Piece, counts: Counts) -> Iterator[bytes]:
        """Make the events of one token."""

    def closing(self, choices: list[Choice], counts: Counts) -> Iterator[bytes]:
        """Make the events between the last token and the end."""
        del choices, counts
        yield from ()

    def end(self, choices: list[Choice], counts: Counts) -> bytes:
        """Make the last event, without which an answer is not complete."""
        del choices, counts
        return DONE

    def failure(self, payload: object) -> bytes | None:
        """Make the events of an error after the stream has begun; None for an engine that breaks off instead."""
        return event(payload) + DONE


def event(payload: object) -> bytes:
    """Frame a payload as one server-sent event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def named_event(name: str, payload: object) -> bytes:
    """Frame a payload as one server-sent event with a name."""
    return b"event: " + name.encode() + b"\n" + event(payload)
