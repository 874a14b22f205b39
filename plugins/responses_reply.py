"""Turns the answers of workers that were asked over the chat API into those of the Responses API."""

import orjson
from attrs import frozen

from kernel import BytesReply, Exchange, PluginSpec, Reply, StreamReply
from plugins.chat.stream import ChatStream
from plugins.endpoints import RESPONSES
from plugins.hooks import Hooks
from plugins.responses.answer import response_from
from plugins.responses.events import ResponseEvents
from plugins.responses.tools import namespaces_of
from plugins.slots import MODEL, OFFER, PAYLOAD, TRANSLATED


@frozen
class ResponsesReply(Hooks):
    """Translate the reply where dispatch took the offer of `responses_request`; any other passes untouched."""

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Translate.

        Raises:
            WorkerRejection: 502, the worker's answer cannot be understood.
        """
        taken = exchange.get(TRANSLATED)
        if taken is None or exchange.endpoint is not RESPONSES or taken is not exchange.get(OFFER):
            return reply
        request, model = exchange[PAYLOAD].data, exchange[MODEL]
        if isinstance(reply, StreamReply):
            stream = ChatStream(ResponseEvents(request, model, namespaces_of(request)))
            reply.attach(step=stream.push, check=stream.check, close=stream.close)
        elif isinstance(reply, BytesReply) and reply.status == 200:
            response = response_from(reply.body, request, model, namespaces_of(request))
            return BytesReply(orjson.dumps(response), headers=reply.headers)
        return reply


PLUGIN = PluginSpec("responses_reply", ResponsesReply, needs=(PAYLOAD, MODEL), endpoints=frozenset((RESPONSES,)))
