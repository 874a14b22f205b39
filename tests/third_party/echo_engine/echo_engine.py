"""An engine whose context worker hands over a ticket, in a field that the generation worker reads."""

from typing import ClassVar

import orjson
from attrs import frozen

from plugins.dispatch.engine import Body, Handoff, Reading, Request
from plugins.dispatch.plan import SERIAL_RELAY, Plan
from plugins.dispatch.worker import Role


@frozen
class EchoEngine:
    """`field` is the name under which a ticket travels."""

    name: ClassVar[str] = "echo"
    plan: ClassVar[Plan] = SERIAL_RELAY

    field: str = "ticket"

    def check(self, request: Request, /) -> None:
        """Serve everything."""

    def body(self, role: Role, request: Request, handoff: Handoff | None, /) -> Body:
        """The client's request, with the ticket if there is one."""
        return Body(orjson.dumps({**request.payload.data, "role": role, **(handoff.fields if handoff else {})}))

    def read(self, role: Role, request: Request, answer: bytes, handoff: Handoff | None = None, /) -> Reading:
        """The ticket out of the first answer; the second one as it came."""
        return Handoff({self.field: orjson.loads(answer)[self.field]}) if role is Role.CONTEXT else answer


ENGINE = EchoEngine
