"""Turns data into the bytes of an answer."""

import orjson
from attrs import frozen

from kernel import BytesReply, CallNext, DataReply, Exchange, PluginSpec, Reply


@frozen
class EncodeReply:
    """Encode a reply that is still data as JSON; bytes and streams pass untouched."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Call on, then encode; what cannot be encoded is a fault of whoever made it."""
        reply = await call_next(exchange)
        if not isinstance(reply, DataReply):
            return reply
        headers = reply.headers
        if not any(name.lower() == b"content-type" for name, _ in headers):
            headers = [(b"content-type", b"application/json"), *headers]
        return BytesReply(orjson.dumps(reply.data), reply.status, headers)


PLUGIN = PluginSpec("encode_reply", EncodeReply)
