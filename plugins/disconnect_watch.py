"""Stops the work for a client that hung up."""

from attrs import frozen

from kernel import CallNext, Exchange, PluginSpec, Reply


@frozen
class DisconnectWatch:
    """Cancel what runs further in when the client hangs up before its answer has begun.

    A stream that has begun is stopped by the kernel itself.
    """

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Call on under a watch.

        Raises:
            ClientGone: the client hung up.
        """
        with exchange.interruptible():
            exchange.watch()
            return await call_next(exchange)


PLUGIN = PluginSpec("disconnect_watch", DisconnectWatch)
