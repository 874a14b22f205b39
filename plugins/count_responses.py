"""Counts requests that dispatch answered."""

from attrs import frozen

from kernel import CallNext, Exchange, PluginSpec, Reply
from plugins.endpoints import GENERATIVE
from plugins.metrics import TOTAL_RESPONSES


@frozen
class CountResponses:
    """Count every answer of dispatch, before it is encoded; a request that failed has none."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Call on, then count."""
        reply = await call_next(exchange)
        if exchange.endpoint in GENERATIVE:
            TOTAL_RESPONSES.inc()
        return reply


PLUGIN = PluginSpec("count_responses", CountResponses)
