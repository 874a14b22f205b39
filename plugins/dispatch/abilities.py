"""What an engine may do besides that only a few have any use for: tell times, connect workers, free what is held."""

from collections.abc import Generator, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from attrs import frozen

from plugins.dispatch.engine import Body, Handoff, Notice, Request
from plugins.dispatch.worker import Role
from plugins.slots import LegTimes

T = TypeVar("T")


def able(engine: object, ability: type[T]) -> T | None:
    """The engine itself, if it has the methods of a protocol."""
    return engine if isinstance(engine, ability) else None


@runtime_checkable
class Reports(Protocol):
    """An engine whose workers tell how long a request took them."""

    def report(self, times: LegTimes, headers: Mapping[str, str], received: float, /) -> None:
        """Keep what the head of an answer tells, which came in at `received` (a reading of `time.monotonic()`)."""
        ...


@frozen(eq=False)
class Step:
    """One call on the way to a connection: to the worker of this role, a POST if there is a body."""

    role: Role
    path: str
    body: bytes = b""


@runtime_checkable
class Connects(Protocol):
    """An engine whose workers have to be connected before a KV cache passes between two of them."""

    def connect(self, context: str, generation: str, /) -> Generator[Step, Any, None]:
        """The calls that connect the workers at two URLs; each is sent its answer, decoded, before the next is made.

        Raises:
            MalformedFault: 502, an answer makes no sense, or the two cannot be connected.
        """
        ...

    def disconnect(self, context: str, generation: str, /) -> Generator[Step, Any, None]:
        """The calls that end a connection; that they fail is no failure."""
        ...


@runtime_checkable
class Encodes(Protocol):
    """An engine whose workers are not sent JSON."""

    def encode(self, data: Mapping[str, Any], /) -> Body:
        """A body for its workers."""
        ...


@runtime_checkable
class Frees(Protocol):
    """An engine whose context workers hold a KV cache until somebody comes for it, or tells them that nobody will."""

    def free(self, handoff: Handoff, /) -> Notice:
        """What tells the context worker that nobody comes."""
        ...


@runtime_checkable
class TriesFirst(Protocol):
    """An engine whose generation workers may be asked first, and decline for a cache that has too little."""

    def trial(self, request: Request, /) -> Handoff | None:
        """With what the generation worker is asked first; None: it is not."""
        ...

    def declined(self, answer: bytes, /) -> bool:
        """Whether a whole answer, or the first bytes of one that say something, is none."""
        ...
