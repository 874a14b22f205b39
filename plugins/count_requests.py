"""Counts valid requests, streamed and not."""

from attrs import frozen

from kernel import Exchange, PluginSpec
from plugins.endpoints import GENERATIVE
from plugins.hooks import Hooks
from plugins.metrics import NONSTREAM_REQUESTS, STREAM_REQUESTS, TOTAL_REQUESTS
from plugins.slots import STREAM


@frozen
class CountRequests(Hooks):
    """Count every valid request to a model, before anything may refuse it."""

    def on_request(self, exchange: Exchange) -> None:
        """Count."""
        if exchange.endpoint in GENERATIVE:
            TOTAL_REQUESTS.inc()
            (STREAM_REQUESTS if exchange[STREAM] else NONSTREAM_REQUESTS).inc()


PLUGIN = PluginSpec("count_requests", CountRequests, needs=(STREAM,))
