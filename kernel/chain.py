"""Composes plugins into one callable: the contract of call_next, whose fault it was, and fail-open."""

from collections.abc import Sequence
from time import perf_counter

from structlog.stdlib import get_logger

from kernel.errors import ChainError, ClientGone, Rejection
from kernel.exchange import Exchange
from kernel.plugin import CallNext, Plugin
from kernel.reply import REPLIES, Reply, StreamReply

log = get_logger()


def compose(plugins: Sequence[tuple[str, Plugin, bool]], *, timed: bool = False) -> CallNext:
    """One callable out of (name, plugin, fail-open) triples, outermost first.

    A plugin that calls on twice or returns no Reply is a ChainError; every exception is blamed on the plugin that it
    came from. With `timed`, `exchange.timings` gets each name and the seconds from call to return, innermost first.
    """
    names = ["kernel", *(name for name, _, _ in plugins)]
    chain = _end(names[-1], len(plugins))
    for index, (name, plugin, fail_open) in reversed([*enumerate(plugins)]):
        step = _timed(name, plugin) if timed else plugin
        step = _fail_open(name, step) if fail_open else step
        chain = _link((name, step, fail_open), chain, index, names[index])
    return chain


def _end(name: str, depth: int) -> CallNext:
    async def end(exchange: Exchange) -> Reply:
        again = exchange.depth != depth
        raise ChainError(name, "called call_next twice" if again else "called call_next as the innermost plugin")

    return end


def _link(named: tuple[str, Plugin, bool], inner: CallNext, index: int, caller: str) -> CallNext:
    name, plugin, fail_open = named

    async def link(exchange: Exchange) -> Reply:
        if exchange.depth != index:
            raise ChainError(caller, "called call_next twice")
        exchange.depth = index + 1
        try:
            reply = await plugin(exchange, inner)
            if reply.__class__ not in REPLIES:
                raise ChainError(name, f"returned {type(reply).__name__}, not a Reply")
        except Exception as error:
            exchange.blame(error, name)
            raise
        if reply.__class__ is StreamReply:
            exchange.track(reply, name, fail_open=fail_open)
        return reply

    return link


def _fail_open(name: str, plugin: Plugin) -> Plugin:
    """A plugin without which the chain goes on: when it fails, its inner reply is used, or made."""

    async def guarded(exchange: Exchange, call_next: CallNext) -> Reply:
        passed: list[Reply | Exception] = []

        async def remember(exchange: Exchange) -> Reply:
            try:
                passed.append(reply := await call_next(exchange))
            except Exception as error:
                passed.append(error)
                raise
            return reply

        try:
            reply = await plugin(exchange, remember)
            if reply.__class__ not in REPLIES:
                raise ChainError(name, f"returned {type(reply).__name__}, not a Reply")
        except Exception as error:
            if error in passed or isinstance(error, Rejection | ClientGone):
                raise
            log.exception("plugin.failed", plugin=name, went_on=True)
            given = passed[0] if passed else await call_next(exchange)
            if isinstance(given, Exception):
                raise given from None
            return given
        return reply

    return guarded


def _timed(name: str, plugin: Plugin) -> Plugin:
    async def timed(exchange: Exchange, call_next: CallNext) -> Reply:
        started = perf_counter()
        try:
            return await plugin(exchange, call_next)
        finally:
            if exchange.timings is not None:
                exchange.timings.append((name, perf_counter() - started))

    return timed
