"""Plugins in parts that do not wait: neighbours of this kind run one after the other, without a coroutine for each."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from types import CoroutineType
from typing import Any, TypeAlias

from attrs import define
from structlog.stdlib import get_logger

from kernel import (
    BytesReply,
    CallNext,
    ChainError,
    ClientGone,
    DataReply,
    Exchange,
    Plugin,
    Rejection,
    Reply,
    Slot,
    StreamReply,
)

log = get_logger()

Named: TypeAlias = tuple[str, Plugin, bool]
"""What the kernel makes a chain of: a plugin with its name, and whether it is fail-open."""

Join: TypeAlias = Callable[[Sequence[Named]], Plugin]
"""Makes one plugin of neighbours, outermost first."""

Guard: TypeAlias = AbstractContextManager[None]
"""A block that is left when the request has to stop."""

_PARTS = ("on_request", "on_reply", "on_error")


class Hooks:
    """A plugin that gives the parts which it has, in place of one coroutine; it can be called as any other, too.

    How the parts go together is told by `__call__`. A class that has its own is a plugin as any other.
    """

    __slots__ = ()

    def on_request(self, _exchange: Exchange, /) -> Reply | Coroutine[Any, Any, Reply | None] | None:
        """See a request on its way in, and answer it or return None; it may be an `async def`."""
        return None

    def on_reply(self, _exchange: Exchange, reply: Reply, /) -> Reply:
        """See what is answered further in, and return it or another reply."""
        return reply

    def on_error(self, _exchange: Exchange, _error: BaseException, /) -> Reply | None:
        """See what is raised further in, be it a cancellation, and answer it or return None."""
        return None

    async def __call__(self, exchange: Exchange, call_next: CallNext, /) -> Reply:
        """Answer, usually with what `call_next` returns; raise `Rejection` to decline."""
        asked = self.on_request(exchange)
        own = await asked if isinstance(asked, Coroutine) else asked
        if own is not None:
            return own
        try:
            reply = await call_next(exchange)
        except BaseException as error:
            own = self.on_error(exchange, error)
            if own is None:
                raise
            return own
        return self.on_reply(exchange, reply)

    @property
    def joined_by(self) -> Join | None:
        """What makes one plugin of neighbours which all have the same here; the kernel asks."""
        return join if type(self).__call__ is Hooks.__call__ else None


@define(eq=False)
class _Step:
    """The parts that one plugin has of its own, and those plugins that stand further out, the nearest first."""

    name: str
    fail_open: bool
    outer: "tuple[_Step, ...]"
    on_request: Callable[[Exchange], Any] | None
    on_reply: Callable[[Exchange, Any], Any] | None
    on_error: Callable[[Exchange, Any], Any] | None

    def took(self, exchange: Exchange, reply: Any) -> Reply:
        """What a part returned, if it is a reply; a stream and its links without an owner are now this plugin's."""
        kind = reply.__class__
        if kind is StreamReply:
            exchange.track(reply, self.name, fail_open=self.fail_open)
        elif kind is not BytesReply and kind is not DataReply:
            raise ChainError(self.name, f"returned {kind.__name__}, not a Reply")
        return reply  # type: ignore[no-any-return]

    def forgives(self, exchange: Exchange, error: BaseException) -> bool:
        """Whether the request goes on without the part that raised; if not, the plugin is blamed."""
        if not isinstance(error, Exception):
            return False
        if self.fail_open and not isinstance(error, Rejection | ClientGone):
            log.error("plugin.failed", plugin=self.name, went_on=True, exc_info=error)
            return True
        exchange.blame(error, self.name)
        return False


def open_guard(exchange: Exchange, slot: Slot[Guard | None]) -> None:
    """Begin in `on_request` what `with exchange.interruptible():` begins."""
    guard = exchange.interruptible()
    guard.__enter__()
    exchange[slot] = guard


def close_guard(exchange: Exchange, slot: Slot[Guard | None], error: BaseException | None = None) -> None:
    """End it in `on_reply` or `on_error`, if it was begun; raises the reason in place of an interruption."""
    guard = exchange.get(slot)
    if guard is not None:
        exchange[slot] = None  # it has the exchange, which would have it
        guard.__exit__(type(error) if error is not None else None, error, None)


def join(plugins: Sequence[Named]) -> Plugin:
    """One plugin out of neighbours that are all `Hooks`, outermost first."""
    asked: list[tuple[_Step, Callable[[Exchange], Any]]] = []
    steps: tuple[_Step, ...] = ()
    for name, plugin, fail_open in plugins:
        kind = type(plugin)
        own = (getattr(plugin, part) if getattr(kind, part) is not getattr(Hooks, part) else None for part in _PARTS)
        step = _Step(name, fail_open, steps, *own)
        asked += [(step, step.on_request)] if step.on_request is not None else ()
        steps = (step, *steps) if step.on_reply or step.on_error else steps

    async def joined(exchange: Exchange, call_next: CallNext) -> Reply:
        for step, on_request in asked:
            try:
                reply = on_request(exchange)
                if reply.__class__ is CoroutineType:
                    reply = await reply
                if reply is None:
                    continue
                reply = step.took(exchange, reply)
            except BaseException as error:
                if not step.forgives(exchange, error):
                    return _go_out(exchange, step.outer, None, error)
            else:
                return _go_out(exchange, step.outer, reply, None)
        try:
            reply = await call_next(exchange)
        except BaseException as error:
            return _go_out(exchange, steps, None, error)
        return _go_out(exchange, steps, reply, None)

    return joined


def _go_out(exchange: Exchange, steps: tuple[_Step, ...], reply: Reply | None, error: BaseException | None) -> Reply:
    """Take a reply, or an error in its place, out through the parts of `steps`."""
    for step in steps:
        part = step.on_reply if error is None else step.on_error
        if part is None:
            continue
        try:
            given = part(exchange, reply if error is None else error)
            if given is not None or error is None:
                reply, error = given if given.__class__ is BytesReply else step.took(exchange, given), None
        except BaseException as other:
            if other is not error and not step.forgives(exchange, other):
                error = other
            elif error is None:
                step.took(exchange, reply)  # what it attached before it failed stays
    try:
        if error is not None:
            raise error
    finally:
        del error  # its traceback has this frame
    return reply  # type: ignore[return-value]
