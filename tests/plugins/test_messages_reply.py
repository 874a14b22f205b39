"""The promise of `messages_reply`: the answer of a worker that was asked over chat is a Messages answer."""

from typing import Any

import orjson
import pytest
from attrs import evolve

from kernel import COMPLETED, FAILED, BytesReply, CallNext, DataReply, Exchange, Reply, StreamReply
from kernel.testing import Written, run_chain
from plugins.endpoints import MESSAGES
from plugins.messages_reply import MessagesReply
from plugins.messages_request import MessagesRequest
from plugins.slots import OFFER, TRANSLATED, WorkerRejection
from tests.messages.bodies import DONE, chunk, request
from tests.messages.reader import read
from tests.messages.test_answer import answer
from tests.plugins.support import parsed, serve, stream

pytestmark = pytest.mark.anyio

CHAT = (chunk({"content": "Hi."}), chunk({}, "stop", stop_reason="!"), DONE)
JSON = [(b"content-type", b"application/json"), (b"x-own", b"1")]


def dispatch(reply: Reply, taken: str = "offer") -> Any:
    """Stands where dispatch does, with workers that only have the chat API, unless `taken` says otherwise."""

    async def dispatch(exchange: Exchange, call_next: CallNext) -> Reply:
        if taken == "offer":
            exchange[TRANSLATED] = exchange[OFFER]
        elif taken == "other":
            exchange[TRANSLATED] = evolve(exchange[OFFER])
        return reply

    return dispatch


async def asked(reply: Reply, taken: str = "offer", **fields: Any) -> Written:
    """What the client gets."""
    exchange = parsed(request(**fields), endpoint=MESSAGES)
    return await serve(exchange, MessagesRequest(), MessagesReply(), dispatch(reply, taken))


async def test_a_whole_answer_is_a_message() -> None:
    """With its headers, and the model's name as the client gave it."""
    exchange = parsed(request(), endpoint=MESSAGES)
    worker = dispatch(BytesReply(answer(content="Hi"), headers=JSON))
    reply = await run_chain((MessagesRequest(), MessagesReply(), worker), exchange)
    assert isinstance(reply, BytesReply)
    message = orjson.loads(reply.body)
    assert message["type"] == "message"
    assert message["model"] == "m"
    assert message["content"] == [{"type": "text", "text": "Hi"}]
    assert reply.status == 200
    assert reply.headers == JSON
    await exchange.release()


async def test_a_stream_is_a_stream_of_events() -> None:
    """To its end, which tells the stop sequence that the client asked for."""
    written = await asked(stream(*CHAT), stream=True, stop_sequences=["!"])
    message = read(written.body)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "!")
    assert written.outcome is not None
    assert written.outcome.name == COMPLETED


@pytest.mark.parametrize("ending", [(), (ConnectionResetError(),), (DONE,)], ids=["ends", "breaks", "ends early"])
async def test_a_stream_that_is_cut_has_failed(ending: tuple[Any, ...]) -> None:
    """Its block is ended, and the message is not; what is to be said of it is said further out."""
    written = await asked(stream(CHAT[0], *ending), stream=True)
    assert written.body.count(b"event: content_block_stop") == 1
    assert b"message_stop" not in written.body
    assert b"message_delta" not in written.body
    assert written.outcome is not None
    assert written.outcome.name == FAILED


@pytest.mark.parametrize("taken", ["nothing", "other"])
@pytest.mark.parametrize("body", [b"{}", b"data: x\n\n"])
async def test_what_was_not_translated_passes(taken: str, body: bytes) -> None:
    """Workers that have the API, and translations of somebody else, which they turn back themselves."""
    for reply in (BytesReply(body, headers=JSON), stream(body)):
        assert (await asked(reply, taken)).body == body


async def test_replies_that_are_no_workers_pass() -> None:
    """A plugin further in may answer by itself."""
    assert (await asked(BytesReply(b"no", 503))).body == b"no"
    exchange = parsed(request(), endpoint=MESSAGES)
    reply = DataReply({})
    given = await MessagesReply()(exchange, lambda exchange: dispatch(reply, "nothing")(exchange, None))
    assert given is reply
    await exchange.release()


async def test_an_answer_that_is_none_is_an_error() -> None:
    """502, as for any other answer of a worker that cannot be used."""
    with pytest.raises(WorkerRejection) as raised:
        await asked(BytesReply(b"{}"))
    assert raised.value.status == 502


async def test_a_stream_that_nobody_writes_is_none_of_its_concern() -> None:
    """Nothing is held."""
    reply = stream(*CHAT)
    exchange = parsed(request(stream=True), endpoint=MESSAGES)
    await MessagesRequest()(exchange, lambda exchange: MessagesReply()(exchange, lambda ex: dispatch(reply)(ex, None)))
    assert isinstance(reply, StreamReply)
    assert len(reply.links) == 1
    await exchange.release()
