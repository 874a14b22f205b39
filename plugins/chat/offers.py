"""Offers to ask workers over the chat API."""

from collections.abc import Callable
from typing import Final

import orjson

from plugins.chat.reading import Data, object_in, refusal
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.metrics import VALIDATION_EXCEPTIONS
from plugins.slots import InvalidRequest, Payload, Translation

ARGUMENTS: Final = "chat_template_kwargs"


def chat_offer(payload: Payload, translate: Callable[[Data], Data]) -> Translation:
    """The offer to send what `translate` makes of a request's data.

    Where that refuses the request, this counts it as an invalid one.
    """

    def make() -> Payload:
        try:
            body = translate(payload.data)
            return Payload(_encoded(body), body, derived=_derived(body, payload.data))
        except InvalidRequest:
            VALIDATION_EXCEPTIONS.inc()
            raise

    return Translation(CHAT_COMPLETIONS, make)


def _derived(body: Data, data: Data) -> tuple[str, ...]:
    """The names of a chat template's arguments that the client did not give itself."""
    return tuple(sorted(object_in(body, ARGUMENTS).keys() - object_in(data, ARGUMENTS).keys()))


def _encoded(body: Data) -> bytes:
    """Its bytes, so that it is written once where nobody edits it."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        raise refusal("body", "nested too deeply", "invalid_body") from None
