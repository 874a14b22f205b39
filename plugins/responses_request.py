"""Offers to ask workers that lack the Responses API over the chat API."""

from attrs import frozen

from kernel import Exchange, PluginSpec
from plugins.chat.offers import chat_offer
from plugins.endpoints import RESPONSES
from plugins.hooks import Hooks
from plugins.responses.request import chat_request
from plugins.slots import OFFER, PAYLOAD


@frozen
class ResponsesRequest(Hooks):
    """Leave an offer to translate a request to `/v1/responses`; nothing is done unless dispatch takes it.

    What chat has no words for is then refused with the reason: 400, naming the place in the request.
    """

    def on_request(self, exchange: Exchange) -> None:
        """Offer."""
        if exchange.endpoint is RESPONSES:
            exchange[OFFER] = chat_offer(exchange[PAYLOAD], chat_request)


PLUGIN = PluginSpec(
    "responses_request", ResponsesRequest, needs=(PAYLOAD,), fills=(OFFER,), endpoints=frozenset((RESPONSES,))
)
