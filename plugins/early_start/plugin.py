"""Begins streams before their answer does, and keeps them alive while nothing is said."""

from typing import Any, Final

from attrs import Attribute, field, frozen

from kernel import CallNext, Exchange, PluginSpec, Reply
from plugins.early_start.answer import BesideStream
from plugins.endpoints import ANTHROPIC, OPENAI, RESPONSES_API, Api, Dialect
from plugins.slots import STREAM
from plugins.sse import COMMENT, PING

_OPT_OUT: Final = "x-early-start"


def _positive(_instance: object, attribute: "Attribute[Any]", value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{attribute.name} must be above zero, and finite, got {value!r}")


@frozen
class EarlyStart:
    """Begin a stream that has nothing to say for `after_seconds`, and send a sign of life every `interval_seconds`.

    That is an event `ping` for Messages and a comment for all others, in silence only, at any place of the stream. A
    request that fails once its stream was begun has the status 200: it ends with the error event of its API, and the
    headers of its answer are lost. So it is off while `after_seconds` is null, for dialects that `apis` does not name,
    and for a client that asks for plain statuses with `x-early-start: off`.
    """

    after_seconds: float | None = field(default=None, validator=_positive)
    interval_seconds: float = field(default=15.0, validator=_positive)
    apis: tuple[Dialect, ...] = (OPENAI, RESPONSES_API, ANTHROPIC)

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Call on, beside the stream where there is to be one."""
        after = self.after_seconds
        if after is None:
            return await call_next(exchange)
        endpoint = exchange.endpoint
        grammar = endpoint.grammar if isinstance(endpoint, Api) else None
        if grammar not in self.apis or not exchange[STREAM] or _opts_out(exchange):
            return await call_next(exchange)
        ping = PING if grammar == ANTHROPIC else COMMENT
        return await BesideStream(exchange, call_next, ping, self.interval_seconds).begin(after)


def _opts_out(exchange: Exchange) -> bool:
    return exchange.headers.get(_OPT_OUT, "").strip().lower() == "off"


PLUGIN = PluginSpec("early_start", EarlyStart, needs=(STREAM,))
