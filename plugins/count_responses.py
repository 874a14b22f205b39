"""Counts requests that dispatch answered."""

from attrs import frozen

from kernel import Exchange, PluginSpec, Reply
from plugins.endpoints import GENERATIVE
from plugins.hooks import Hooks
from plugins.metrics import TOTAL_RESPONSES


@frozen
class CountResponses(Hooks):
    """Count every answer of dispatch, before it is encoded; a request that failed has none."""

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Count."""
        if exchange.endpoint in GENERATIVE:
            TOTAL_RESPONSES.inc()
        return reply


PLUGIN = PluginSpec("count_responses", CountResponses)
