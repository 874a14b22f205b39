"""Stops the work for a client that hung up."""

from typing import Final

from attrs import frozen

from kernel import Exchange, PluginSpec, Reply, Slot
from plugins.hooks import Guard, Hooks, close_guard, open_guard

_GUARD: Final = Slot[Guard | None]("disconnect_guard")


@frozen
class DisconnectWatch(Hooks):
    """Cancel what runs further in when the client hangs up before its answer has begun.

    A stream that has begun is stopped by the kernel itself.
    """

    def on_request(self, exchange: Exchange) -> None:
        """Begin to watch.

        Raises:
            ClientGone: the client hung up.
        """
        open_guard(exchange, _GUARD)
        exchange.watch()

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """What runs from now on is not cancelled."""
        close_guard(exchange, _GUARD)
        return reply

    def on_error(self, exchange: Exchange, error: BaseException) -> None:
        """Say that the client hung up, if that is what ended the work."""
        close_guard(exchange, _GUARD, error)


PLUGIN = PluginSpec("disconnect_watch", DisconnectWatch)
