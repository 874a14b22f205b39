"""Any server that speaks OpenAI's API: one worker serves the whole request."""

from typing import ClassVar

from attrs import frozen

from plugins.dispatch.engine import Body, Handoff, Request
from plugins.dispatch.plan import SINGLE_LEG, Plan
from plugins.dispatch.worker import Role


@frozen
class OpenAIEngine:
    """Send the client's own bytes, unless a plugin edited them, and give the worker's own bytes back."""

    name: ClassVar[str] = "openai"
    plan: ClassVar[Plan] = SINGLE_LEG

    def check(self, request: Request, /) -> None:
        """Serve everything."""

    def body(self, _role: Role, request: Request, _handoff: Handoff | None, /) -> Body:
        """The request as it came."""
        return Body(request.payload.encode())

    def read(self, _role: Role, _request: Request, answer: bytes, _handoff: Handoff | None = None, /) -> bytes:
        """The answer as it came."""
        return answer


ENGINE = OpenAIEngine
