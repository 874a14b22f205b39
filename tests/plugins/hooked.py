"""Neighbours in parts, which note what they see, for tests of how they are joined."""

from collections.abc import Awaitable, Callable
from typing import Any

from kernel import BytesReply, CallNext, Exchange, Reply
from kernel.chain import compose
from kernel.testing import build_exchange
from plugins.hooks import Hooks

ANSWER = BytesReply(b"answer")
FAULT = ValueError("fault")


def fall(*_: object) -> Any:
    """Raise."""
    raise FAULT


class Noted(Hooks):
    """Notes what it sees; each of its parts does what it is told."""

    def __init__(self, name: str, trail: list[str], **parts: Callable[..., Any]) -> None:
        self.name, self.trail, self.parts = name, trail, parts

    def on_request(self, exchange: Exchange) -> Any:
        """On the way in."""
        self.trail.append(f"{self.name} in")
        return self.parts["on_request"]() if "on_request" in self.parts else None

    def on_reply(self, exchange: Exchange, reply: Reply) -> Any:
        """On the way out."""
        self.trail.append(f"{self.name} out")
        return self.parts["on_reply"](reply) if "on_reply" in self.parts else reply

    def on_error(self, exchange: Exchange, error: BaseException) -> Any:
        """On the way out with an error."""
        self.trail.append(f"{self.name} {type(error).__name__}")
        return self.parts["on_error"](error) if "on_error" in self.parts else None


class Scene:
    """Three neighbours with parts, `a`, `b` and `c`, in front of a plugin that answers, or does something else."""

    def __init__(
        self, *, fail_open: bool = False, inner: Callable[[], Awaitable[Reply]] | None = None, **of_b: Any
    ) -> None:
        self.trail: list[str] = []
        self.exchange = build_exchange()

        async def innermost(_exchange: Exchange, _call_next: CallNext) -> Reply:
            self.trail.append("inner")
            return ANSWER if inner is None else await inner()

        self.plugins: list[Any] = [(name, Noted(name, self.trail), False) for name in ("a", "c")]
        self.plugins.insert(1, ("b", Noted("b", self.trail, **of_b), fail_open))
        self.plugins.append(("inner", innermost, False))

    async def run(self, *, timed: bool = False) -> str:
        """What comes out, and after a bar what each saw on the way."""
        try:
            reply = await compose(self.plugins, timed=timed)(self.exchange)
        except BaseException as error:
            came = f"{type(error).__name__} of {self.exchange.culprit(error)}"
        else:
            came = reply.body.decode() if isinstance(reply, BytesReply) else type(reply).__name__
        return f"{came} | {', '.join(self.trail)}"
