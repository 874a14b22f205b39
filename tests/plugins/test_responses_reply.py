"""The promise of `responses_reply`: the answer of a worker that was asked over chat is a Responses answer."""

from typing import Any

import orjson
import pytest
from attrs import evolve

from kernel import COMPLETED, FAILED, BytesReply, CallNext, Exchange, Reply
from kernel.testing import Written, run_chain
from plugins.endpoints import RESPONSES
from plugins.responses_reply import ResponsesReply
from plugins.responses_request import ResponsesRequest
from plugins.slots import OFFER, TRANSLATED, WorkerRejection
from tests.messages.test_answer import answer, called
from tests.plugins.support import parsed, serve, stream
from tests.responses.items import SPACE, request
from tests.responses.test_stream import SAID, read

pytestmark = pytest.mark.anyio

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
    exchange = parsed(request(tools=[SPACE], **fields), endpoint=RESPONSES)
    return await serve(exchange, ResponsesRequest(), ResponsesReply(), dispatch(reply, taken))


async def test_a_whole_answer_is_a_response() -> None:
    """With its headers, the model's name as the client gave it, and the namespace of a tool."""
    call = called("{}") | {"function": {"name": "agents__spawn", "arguments": "{}"}}
    worker = dispatch(BytesReply(answer("tool_calls", tool_calls=[call]), headers=JSON))
    exchange = parsed(request(tools=[SPACE]), endpoint=RESPONSES)
    reply = await run_chain((ResponsesRequest(), ResponsesReply(), worker), exchange)
    assert isinstance(reply, BytesReply)
    response = orjson.loads(reply.body)
    assert (response["object"], response["model"], response["status"]) == ("response", "m", "completed")
    assert (response["output"][0]["name"], response["output"][0]["namespace"]) == ("spawn", "agents")
    assert reply.status == 200
    assert reply.headers == JSON
    await exchange.release()


async def test_a_stream_is_a_stream_of_events() -> None:
    """To its end."""
    written = await asked(stream(*SAID), stream=True)
    assert [item.type for item in read(written.body).output][-1] == "function_call"
    assert written.outcome is not None
    assert written.outcome.name == COMPLETED


@pytest.mark.parametrize("ending", [(), (ConnectionResetError(),), (SAID[-1],)], ids=["ends", "breaks", "ends early"])
async def test_a_stream_that_is_cut_has_failed(ending: tuple[Any, ...]) -> None:
    """What is to be said of it is said further out."""
    written = await asked(stream(*SAID[:4], *ending), stream=True)
    assert b"response.completed" not in written.body
    assert b"event: response.output_text.done" not in written.body
    assert written.outcome is not None
    assert written.outcome.name == FAILED


@pytest.mark.parametrize("taken", ["nothing", "other"])
@pytest.mark.parametrize("body", [b"{}", b"data: x\n\n"])
async def test_what_was_not_translated_passes(taken: str, body: bytes) -> None:
    """Workers that have the API, and translations of somebody else, which they turn back themselves."""
    for reply in (BytesReply(body, headers=JSON), stream(body)):
        assert (await asked(reply, taken)).body == body


async def test_an_answer_that_is_none_is_an_error() -> None:
    """502, as for any other answer of a worker that cannot be used."""
    with pytest.raises(WorkerRejection) as raised:
        await asked(BytesReply(b"{}"))
    assert raised.value.status == 502
    assert (await asked(BytesReply(b"no", 503))).body == b"no"
