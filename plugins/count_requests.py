"""Counts valid requests, streamed and not."""

from attrs import frozen

from kernel import CallNext, Exchange, PluginSpec, Reply
from plugins.endpoints import GENERATIVE
from plugins.metrics import NONSTREAM_REQUESTS, STREAM_REQUESTS, TOTAL_REQUESTS
from plugins.slots import STREAM


@frozen
class CountRequests:
    """Count every valid request to a model, before anything may refuse it."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Count, then call on."""
        if exchange.endpoint in GENERATIVE:
            TOTAL_REQUESTS.inc()
            (STREAM_REQUESTS if exchange[STREAM] else NONSTREAM_REQUESTS).inc()
        return await call_next(exchange)


PLUGIN = PluginSpec("count_requests", CountRequests, needs=(STREAM,))
