"""Reads, decodes and validates the body of a request."""

from time import monotonic
from typing import Any, Final

import orjson
from attrs import field, frozen, validators
from structlog.stdlib import get_logger

from kernel import Exchange, PluginSpec, Rejection
from plugins.endpoints import GENERATIVE, RESPONSES
from plugins.hooks import Hooks
from plugins.metrics import VALIDATION_EXCEPTIONS
from plugins.schemas import CHECKS
from plugins.slots import BODY_SECONDS, MODEL, PAYLOAD, STREAM, InvalidRequest, Payload

log = get_logger()

_COMPRESSED: Final = "a compressed request body is not supported"
_PLAIN: Final = (("accept-encoding", "identity"), ("connection", "close"))
"""What would be understood; and the body is not read, so nothing after it is."""


@frozen
class ParseRequest(Hooks):
    """Fill the slots `payload`, `model` and `stream`, or answer with what is wrong with the body.

    Fields that this API does not define pass unchecked: workers have their own. The media type is not
    looked at, since clients send JSON under any. Units: bytes, seconds.
    """

    max_body_bytes: int = field(default=10 * 1024 * 1024, validator=validators.ge(1))
    body_timeout_seconds: float = field(default=60.0, validator=validators.gt(0))
    _told: set[str] = field(init=False, factory=set, eq=False, repr=False)

    async def on_request(self, exchange: Exchange) -> None:
        """Parse.

        Raises:
            InvalidRequest: 400, the body is not a valid request.
            Rejection: 413, 408 or 400, the body is too large, too slow or cut short; 415, it is compressed.
        """
        check = CHECKS.get(exchange.endpoint)
        if check is not None:
            if b"content-encoding" in exchange.sent:
                _check_encoding(exchange)
            began = monotonic()
            raw = await exchange.read(self.max_body_bytes, self.body_timeout_seconds)
            exchange[BODY_SECONDS] = monotonic() - began
            try:
                data = _decode(raw)
                check(data)
            except InvalidRequest:
                VALIDATION_EXCEPTIONS.inc()
                raise
            exchange[PAYLOAD] = Payload(raw, data)
            exchange[MODEL] = data.get("model") or ""
            exchange[STREAM] = exchange.endpoint in GENERATIVE and bool(data.get("stream"))
            if exchange.endpoint is RESPONSES and data.get("store"):
                self._tell_of_store()

    def _tell_of_store(self) -> None:
        """Say once that a client's wish to have its answer kept is not met."""
        if "store" not in self._told:
            self._told.add("store")
            log.warning("store.ignored", endpoint=RESPONSES.name)


def _check_encoding(exchange: Exchange) -> None:
    for name, value in exchange.scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise Rejection(415, _COMPRESSED, "unsupported_encoding", _PLAIN)


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        problem = f"not valid JSON: {error}" if raw.strip() else "empty, expected a JSON object"
        raise InvalidRequest(400, f"the request body is {problem}", "invalid_json") from None
    if data.__class__ is not dict:
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
