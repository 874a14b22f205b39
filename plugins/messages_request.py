"""Offers to ask workers that lack the Messages API over the chat API."""

from attrs import frozen

from kernel import CallNext, Exchange, PluginSpec, Reply
from plugins.endpoints import CHAT_COMPLETIONS, MESSAGES
from plugins.messages.request import chat_payload
from plugins.metrics import VALIDATION_EXCEPTIONS
from plugins.slots import OFFER, PAYLOAD, InvalidRequest, Payload, Translation


@frozen
class MessagesRequest:
    """Leave an offer to translate a request to `/v1/messages`; nothing is done unless dispatch takes it.

    What chat has no words for is then refused with the reason: 400, naming the place in the request.
    """

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Offer, then call on."""
        if exchange.endpoint is MESSAGES:
            payload = exchange[PAYLOAD]
            exchange[OFFER] = Translation(CHAT_COMPLETIONS, lambda: _translate(payload))
        return await call_next(exchange)


def _translate(payload: Payload) -> Payload:
    try:
        return chat_payload(payload)
    except InvalidRequest:
        VALIDATION_EXCEPTIONS.inc()
        raise


PLUGIN = PluginSpec("messages_request", MessagesRequest, needs=(PAYLOAD,), fills=(OFFER,))
