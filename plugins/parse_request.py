"""Reads, decodes and validates the body of a request."""

from time import monotonic
from typing import Any, Final

import orjson
from attrs import field, frozen, validators

from kernel import CallNext, Exchange, PluginSpec, Rejection, Reply
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS, GENERATIVE
from plugins.metrics import VALIDATION_EXCEPTIONS
from plugins.schemas import check_chat, check_completion
from plugins.slots import BODY_SECONDS, MODEL, PAYLOAD, STREAM, InvalidRequest, Payload

_CHECKS: Final = {COMPLETIONS: check_completion, CHAT_COMPLETIONS: check_chat}
_COMPRESSED: Final = "a compressed request body is not supported"
_PLAIN: Final = (("accept-encoding", "identity"), ("connection", "close"))
"""What would be understood; and the body is not read, so nothing after it is."""


@frozen
class ParseRequest:
    """Fill the slots `payload`, `model` and `stream`, or answer with what is wrong with the body.

    Fields that this API does not define pass unchecked: workers have their own. The media type is not
    looked at, since clients send JSON under any. Units: bytes, seconds.
    """

    max_body_bytes: int = field(default=10 * 1024 * 1024, validator=validators.ge(1))
    body_timeout_seconds: float = field(default=60.0, validator=validators.gt(0))

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Parse, then call on.

        Raises:
            InvalidRequest: 400, the body is not a valid request.
            Rejection: 413, 408 or 400, the body is too large, too slow or cut short; 415, it is compressed.
        """
        if exchange.endpoint in GENERATIVE:
            for name, value in exchange.scope["headers"]:
                if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                    raise Rejection(415, _COMPRESSED, "unsupported_encoding", _PLAIN)
            began = monotonic()
            raw = await exchange.read(self.max_body_bytes, self.body_timeout_seconds)
            exchange[BODY_SECONDS] = monotonic() - began
            try:
                data = _decode(raw)
                _CHECKS[exchange.endpoint](data)
            except InvalidRequest:
                VALIDATION_EXCEPTIONS.inc()
                raise
            exchange[PAYLOAD] = Payload(raw, data)
            exchange[MODEL] = data["model"]
            exchange[STREAM] = bool(data.get("stream"))
        return await call_next(exchange)


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        problem = f"not valid JSON: {error}" if raw.strip() else "empty, expected a JSON object"
        raise InvalidRequest(400, f"the request body is {problem}", "invalid_json") from None
    if not isinstance(data, dict):
        raise InvalidRequest(400, f"the request body must be a JSON object, not {_name(data)}", "invalid_json")
    return data


def _name(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "an array"


PLUGIN = PluginSpec("parse_request", ParseRequest, fills=(PAYLOAD, MODEL, STREAM, BODY_SECONDS))
