"""Offers to ask workers that lack the Messages API over the chat API."""

from attrs import frozen

from kernel import CallNext, Exchange, PluginSpec, Reply
from plugins.chat.offers import chat_offer
from plugins.endpoints import MESSAGES
from plugins.messages.request import chat_request
from plugins.slots import OFFER, PAYLOAD


@frozen
class MessagesRequest:
    """Leave an offer to translate a request to `/v1/messages`; nothing is done unless dispatch takes it.

    What chat has no words for is then refused with the reason: 400, naming the place in the request.
    """

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Offer, then call on."""
        if exchange.endpoint is MESSAGES:
            exchange[OFFER] = chat_offer(exchange[PAYLOAD], chat_request)
        return await call_next(exchange)


PLUGIN = PluginSpec(
    "messages_request", MessagesRequest, needs=(PAYLOAD,), fills=(OFFER,), endpoints=frozenset((MESSAGES,))
)
