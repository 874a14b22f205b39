"""Offers to ask workers over the chat API."""

from collections.abc import Callable

import orjson

from plugins.chat.reading import Data, refusal
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.metrics import VALIDATION_EXCEPTIONS
from plugins.slots import InvalidRequest, Payload, Translation


def chat_offer(payload: Payload, translate: Callable[[Data], Data]) -> Translation:
    """The offer to send what `translate` makes of a request's data.

    Where that refuses the request, this counts it as an invalid one.
    """

    def make() -> Payload:
        try:
            return _encoded(translate(payload.data))
        except InvalidRequest:
            VALIDATION_EXCEPTIONS.inc()
            raise

    return Translation(CHAT_COMPLETIONS, make)


def _encoded(body: Data) -> Payload:
    """A payload with its bytes, so that it is written once where nobody edits it."""
    try:
        return Payload(orjson.dumps(body), body)
    except orjson.JSONEncodeError:
        raise refusal("body", "nested too deeply", "invalid_body") from None
