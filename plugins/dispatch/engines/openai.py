"""Any server that speaks OpenAI's API: one worker serves the whole request."""

from typing import ClassVar, Final

from attrs import field, frozen

from plugins.dispatch.apis import USUAL, Apis, check_apis
from plugins.dispatch.engine import Body, Handoff, Request
from plugins.dispatch.plan import SINGLE_LEG, Plan
from plugins.dispatch.worker import Role

_APIS: Final[Apis] = (*USUAL, "embeddings", "rerank", "score", "tokenize", "detokenize")


@frozen
class OpenAIEngine:
    """Send the client's own bytes, unless a plugin edited them, and give the worker's own bytes back.

    `apis`: what the workers answer by themselves. Many servers have `responses`, `messages` and `count_tokens` too.
    """

    name: ClassVar[str] = "openai"
    plan: ClassVar[Plan] = SINGLE_LEG

    apis: Apis = field(default=_APIS, validator=check_apis)

    def check(self, request: Request, /) -> None:
        """Serve everything."""

    def body(self, _role: Role, request: Request, _handoff: Handoff | None, /) -> Body:
        """The request as it came."""
        return Body(request.payload.encode())

    def read(self, _role: Role, _request: Request, answer: bytes, _handoff: Handoff | None = None, /) -> bytes:
        """The answer as it came."""
        return answer


ENGINE = OpenAIEngine
