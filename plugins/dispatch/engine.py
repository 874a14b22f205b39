"""The contract of an engine, which edits bodies and reads handoffs, and does no I/O, and what it may do besides."""

import re
from collections.abc import Mapping
from time import monotonic
from typing import Any, Protocol, TypeAlias, runtime_checkable

from attrs import define, field, frozen

from kernel import Endpoint
from plugins.dispatch.plan import Plan
from plugins.dispatch.policy import Match
from plugins.dispatch.worker import Role, Worker
from plugins.slots import Conversation, Payload, Performance


@define(eq=False)
class Request:
    """What an engine may know of a request. It never changes the payload: every leg gets its own copy.

    With `performance` somebody wants to know what workers tell of the request's times.
    """

    endpoint: Endpoint
    payload: Payload
    stream: bool
    conversation: Conversation | None = None
    performance: Performance | None = None


@define(eq=False)
class Body:
    """What one leg is sent: the bytes, and headers beyond those that every leg gets."""

    content: bytes
    headers: Mapping[str, str] = field(factory=dict)


@define(eq=False)
class Handoff:
    """The fields by which a KV cache is handed over, for the body of a leg; it belongs to one attempt.

    After `lifetime` seconds the context worker gives the cache up. One that is not `complete` hands nothing over:
    the generation worker does both phases. One that is good only `once` is sent to one worker, come what may; one
    that is `reusable` may be sent to another worker when one has seen it, and all others only if none has.
    `notes` are the engine's own. `origin` is the context worker that holds the cache, where an engine needs to know.
    """

    fields: Mapping[str, Any]
    lifetime: float | None = None
    complete: bool = True
    once: bool = False
    reusable: bool = False
    notes: Any = None
    origin: Worker | None = None
    made: float = field(factory=monotonic, init=False)


@frozen(eq=False)
class Final:
    """An answer that is the client's although legs are left in the plan: `data` is its whole JSON object."""

    data: dict[str, Any]


Reading: TypeAlias = "Handoff | Final | bytes"
"""What an engine makes of a leg's whole answer: for the next leg, or for the client."""


class Engine(Protocol):
    """An attrs class whose `init` fields are its configuration. `name` is that of its entry point.

    An engine may also have the methods of the protocols below, and of those in `abilities`.
    """

    @property
    def name(self) -> str:
        """The name of its entry point."""
        ...

    @property
    def plan(self) -> Plan:
        """The legs of its requests; known from the configuration alone."""
        ...

    def check(self, request: Request, /) -> None:
        """Look at a request before any worker is chosen for it.

        Raises:
            Rejection: 400, this engine cannot serve it.
        """
        ...

    def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
        """What to send to a worker; made anew for each attempt, so that no id is sent twice.

        Without a handoff, the last leg of a plan serves the whole request.
        """
        ...

    def read(self, role: Role, request: Request, answer: bytes, handoff: Handoff | None = None, /) -> Reading:
        """Read the whole answer of a leg that was not streamed; bytes go to the client as they are.

        The handoff is the one with which the leg was sent; of legs that went together, the last one's is what was
        read of the first one's answer.

        Raises:
            Rejection: 502, the answer cannot be used.
        """
        ...


@frozen(eq=False)
class Partner:
    """The context worker of a pair: where it is, and what it told of itself if it was asked."""

    url: str
    bootstrap_port: int | None = None
    told: Any = None


@runtime_checkable
class Pairs(Protocol):
    """An engine whose legs go together."""

    def meet(self, request: Request, partner: Partner, /) -> Handoff:
        """How the two workers of one attempt find each other; both legs are sent with it.

        Raises:
            MalformedFault: 502, what the context worker told of itself is of no use.
        """
        ...


@runtime_checkable
class Asks(Protocol):
    """An engine that has to know something of a context worker before it can be one of a pair."""

    def question(self, partner: Partner, /) -> str:
        """The URL under which the worker tells of itself, in JSON. It is read once, and again after a failure."""
        ...


@frozen(eq=False)
class Notice:
    """A POST that tells a worker something about a request of its own; the answer's body is not looked at."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(factory=dict)


@runtime_checkable
class Aborts(Protocol):
    """An engine whose workers do not stop for a closed connection alone."""

    def abort(self, role: Role, handoff: Handoff, /) -> Notice:
        """What tells a worker to stop the leg that was sent with this handoff."""
        ...


@runtime_checkable
class ServesAlone(Protocol):
    """An engine some of whose requests cannot be handed over."""

    def alone(self, request: Request, /) -> bool:
        """Whether the last leg's worker has to serve the whole request by itself."""
        ...


@runtime_checkable
class Bypasses(Protocol):
    """An engine that may leave the context phase out, going by what the generation worker has cached."""

    @property
    def conditional(self) -> bool:
        """Whether it is configured to; if so, the generation worker is chosen first, by a policy that tells."""
        ...

    def bypass(self, match: Match, /) -> bool:
        """Whether the generation worker that was chosen does both phases."""
        ...


@runtime_checkable
class Edits(Protocol):
    """An engine whose streams hold what is not for clients."""

    @property
    def concern(self) -> "re.Pattern[bytes]":
        """What is found in every event that may have to be changed; all others pass as they are."""
        ...

    def edit(self, request: Request, handoff: Handoff | None, name: bytes, data: bytes, /) -> bytes | None:
        """The data of an event as the client may have it; None takes the event out. `name` is the event's."""
        ...
