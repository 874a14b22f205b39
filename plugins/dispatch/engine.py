"""The contract of an engine, which edits bodies and reads handoffs, and does no I/O."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

from attrs import field, frozen

from kernel import Endpoint
from plugins.dispatch.plan import Plan
from plugins.dispatch.worker import Role
from plugins.slots import Conversation, Payload


@frozen(eq=False)
class Request:
    """What an engine may know of a request. It never changes the payload: every leg gets its own copy."""

    endpoint: Endpoint
    payload: Payload
    stream: bool
    conversation: Conversation | None = None


@frozen(eq=False)
class Body:
    """What one leg is sent: the bytes, and headers beyond those that every leg gets."""

    content: bytes
    headers: Mapping[str, str] = field(factory=dict)


@frozen(eq=False)
class Handoff:
    """The fields that a leg's answer puts into the body of the next leg; it belongs to one attempt."""

    fields: Mapping[str, Any]


@frozen(eq=False)
class Final:
    """An answer that is the client's although legs are left in the plan: `data` is its whole JSON object."""

    data: dict[str, Any]


Reading: TypeAlias = "Handoff | Final | bytes"
"""What an engine makes of a leg's whole answer: for the next leg, or for the client."""


class Engine(Protocol):
    """An attrs class whose `init` fields are its configuration. `name` is that of its entry point."""

    name: ClassVar[str]
    plan: ClassVar[Plan]

    def check(self, request: Request, /) -> None:
        """Look at a request before any worker is chosen for it.

        Raises:
            Rejection: 400, this engine cannot serve it.
        """
        ...

    def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
        """What to send to a worker; made anew for each attempt, so that no id is sent twice."""
        ...

    def read(self, role: Role, request: Request, answer: bytes, /) -> Reading:
        """Read the whole answer of a leg that was not streamed; bytes go to the client as they are.

        Raises:
            Rejection: 502, the answer cannot be used.
        """
        ...
