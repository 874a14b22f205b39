"""Turns the answers of workers that were asked over the chat API into those of the Messages API."""

import orjson
from attrs import frozen

from kernel import BytesReply, Exchange, PluginSpec, Reply, StreamReply
from plugins.chat.stream import ChatStream
from plugins.endpoints import MESSAGES
from plugins.hooks import Hooks
from plugins.messages.answer import message_from
from plugins.messages.events import MessageEvents
from plugins.slots import MODEL, OFFER, PAYLOAD, TRANSLATED


@frozen
class MessagesReply(Hooks):
    """Translate the reply where dispatch took the offer of `messages_request`; any other passes untouched."""

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Translate.

        Raises:
            WorkerRejection: 502, the worker's answer cannot be understood.
        """
        taken = exchange.get(TRANSLATED)
        if taken is None or exchange.endpoint is not MESSAGES or taken is not exchange.get(OFFER):
            return reply
        model, stops = exchange[MODEL], exchange[PAYLOAD].data.get("stop_sequences") or ()
        if isinstance(reply, StreamReply):
            stream = ChatStream(MessageEvents(model, stops), empty=True)
            reply.attach(step=stream.push, check=stream.check, close=stream.close)
        elif isinstance(reply, BytesReply) and reply.status == 200:
            return BytesReply(orjson.dumps(message_from(reply.body, model, stops)), headers=reply.headers)
        return reply


PLUGIN = PluginSpec("messages_reply", MessagesReply, needs=(PAYLOAD, MODEL), endpoints=frozenset((MESSAGES,)))
