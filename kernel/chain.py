"""Composes plugins into one callable: the contract of call_next, whose fault it was, and fail-open."""

from collections.abc import Iterator, Sequence
from itertools import groupby
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
    plugins = [made for side_by_side in (zip(plugins) if timed else (plugins,)) for made in _joined(side_by_side)]
    names = ["kernel", *(name for name, _, _ in plugins)]

    async def end(exchange: Exchange) -> Reply:
        again = exchange.depth != len(plugins)
        raise ChainError(names[-1], f"called call_next {'twice' if again else 'as the innermost plugin'}")

    chain: CallNext = end
    for index, (name, plugin, fail_open) in reversed([*enumerate(plugins)]):
        step = _timed(name, plugin) if timed else plugin
        chain = _link((name, step, fail_open), chain, index, names[index], noted=index > 0 and plugins[index - 1][2])
    return chain


def _joined(plugins: Sequence[tuple[str, Plugin, bool]]) -> Iterator[tuple[str, Plugin, bool]]:
    """Neighbours with the same `joined_by`, as the one plugin that it makes of them."""
    for join, group in groupby(plugins, lambda named: getattr(named[1], "joined_by", None)):
        same = [*group]
        yield from same if join is None else [(same[-1][0], join(same), False)]


def _link(named: tuple[str, Plugin, bool], inner: CallNext, index: int, caller: str, *, noted: bool) -> CallNext:
    """One plugin with what stands further in; with `noted` its caller is fail-open, and may need again what it gave."""
    name, plugin, fail_open = named

    async def link(exchange: Exchange) -> Reply:
        try:
            if exchange.depth != index:
                raise ChainError(caller, "called call_next twice")
            exchange.depth = index + 1
            reply = await plugin(exchange, inner)
            if reply.__class__ not in REPLIES:
                raise ChainError(name, f"returned {type(reply).__name__}, not a Reply")
        except Exception as error:
            passed = isinstance(error, Rejection | ClientGone) or any(given is error for _, given in exchange.given)
            if not fail_open or passed:
                exchange.blame(error, error.plugin if isinstance(error, ChainError) else name)
                if noted:
                    exchange.given.append((index, error))
                raise
            log.exception("plugin.failed", plugin=name, went_on=True)
            made = next((given for at, given in exchange.given if at == index + 1), None) or await inner(exchange)
            if isinstance(made, Exception):
                raise made from None
            reply = made
        if reply.__class__ is StreamReply:
            exchange.track(reply, name, fail_open=fail_open)
        if noted:
            exchange.given.append((index, reply))
        return reply

    return link


def _timed(name: str, plugin: Plugin) -> Plugin:
    async def timed(exchange: Exchange, call_next: CallNext) -> Reply:
        started = perf_counter()
        try:
            return await plugin(exchange, call_next)
        finally:
            if exchange.timings is not None:
                exchange.timings.append((name, perf_counter() - started))

    return timed
