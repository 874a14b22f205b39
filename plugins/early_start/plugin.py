"""Begins streams before their answer does, and keeps them alive while nothing is said."""

from typing import Any, Final

from attrs import Attribute, field, frozen

from kernel import CallNext, Exchange, PluginSpec, Reply
from plugins.early_start.answer import BesideStream
from plugins.endpoints import ANTHROPIC, OPENAI, RESPONSES_API, Api, Dialect
from plugins.hooks import Hooks, Join, join
from plugins.slots import STREAM
from plugins.sse import COMMENT, HEARTBEAT, PING

_WISH: Final = "x-early-start"


def _positive(_instance: object, attribute: "Attribute[Any]", value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{attribute.name} must be above zero, and finite, got {value!r}")


@frozen
class EarlyStart(Hooks):
    """Begin a stream that has nothing to say for `after_seconds`, and send a sign of life every `interval_seconds`.

    That is an event `ping` for Messages and a comment for all others, in silence only, at any place of the stream; on
    Responses an event `keepalive` for Codex, and for clients that ask for it with `x-early-start: events`.

    A request that fails once its stream was begun has the status 200: it ends with the error event of its API, and the
    headers of its answer are lost. So it is off while `after_seconds` is null, for dialects that `apis` does not name,
    and for a client that asks for plain statuses with `x-early-start: off`.
    """

    after_seconds: float | None = field(default=None, validator=_positive)
    interval_seconds: float = field(default=15.0, validator=_positive)
    apis: tuple[Dialect, ...] = (OPENAI, RESPONSES_API, ANTHROPIC)

    @property
    def joined_by(self) -> Join | None:
        """What is off has no part in anything, and stands in the way of no neighbours."""
        return join if self.after_seconds is None else None

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Call on, beside the stream where there is to be one."""
        after = self.after_seconds
        if after is None:
            return await call_next(exchange)
        endpoint = exchange.endpoint
        grammar = endpoint.grammar if isinstance(endpoint, Api) else None
        if grammar not in self.apis or not exchange[STREAM] or _wish(exchange) == "off":
            return await call_next(exchange)
        beside = BesideStream(exchange, call_next, _sign_for(exchange, grammar), self.interval_seconds)
        return await beside.begin(after)


def _wish(exchange: Exchange) -> str:
    return exchange.headers.get(_WISH, "").strip().lower()


def _sign_for(exchange: Exchange, grammar: str) -> bytes:
    """What tells a client of this grammar that somebody works for it."""
    if grammar == ANTHROPIC:
        return PING
    if grammar != RESPONSES_API:
        return COMMENT
    counts = exchange.headers.get("originator", "").lower().startswith("codex") or _wish(exchange) == "events"
    return HEARTBEAT if counts else COMMENT


PLUGIN = PluginSpec("early_start", EarlyStart, needs=(STREAM,))
