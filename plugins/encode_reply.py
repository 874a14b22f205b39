"""Turns data into the bytes of an answer."""

import orjson
from attrs import frozen

from kernel import BytesReply, DataReply, Exchange, PluginSpec, Reply
from plugins.hooks import Hooks


@frozen
class EncodeReply(Hooks):
    """Encode a reply that is still data as JSON; bytes and streams pass untouched."""

    def on_reply(self, _exchange: Exchange, reply: Reply) -> Reply:
        """Encode; what cannot be encoded is a fault of whoever made it."""
        if not isinstance(reply, DataReply):
            return reply
        headers = reply.headers
        if not any(name.lower() == b"content-type" for name, _ in headers):
            headers = [(b"content-type", b"application/json"), *headers]
        return BytesReply(orjson.dumps(reply.data), reply.status, headers)


PLUGIN = PluginSpec("encode_reply", EncodeReply)
