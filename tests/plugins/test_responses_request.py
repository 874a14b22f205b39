"""The promise of `responses_request`: an offer to translate, which costs nothing until it is taken."""

import pytest

from kernel import BytesReply, CallNext, Exchange, Reply
from plugins.endpoints import CHAT_COMPLETIONS, ENDPOINTS, RESPONSES, Api
from plugins.responses_request import ResponsesRequest
from plugins.slots import OFFER, PAYLOAD, InvalidRequest
from tests.plugins.support import counting, parsed, serve
from tests.responses.items import request

pytestmark = pytest.mark.anyio

SERVERS_TOOL = request(tools=[{"type": "file_search", "vector_store_ids": []}])


async def answer(exchange: Exchange, call_next: CallNext) -> Reply:
    """Stands where dispatch does, with workers that have every API."""
    return BytesReply(b"{}")


async def test_a_request_passes_unchanged_where_the_offer_is_not_taken() -> None:
    """Also one that could not be translated: its workers may understand it."""
    exchange = parsed(SERVERS_TOOL, endpoint=RESPONSES)
    with counting() as counted:
        written = await serve(exchange, ResponsesRequest(), answer)
    assert written.body == b"{}"
    assert not exchange[PAYLOAD].edited
    assert "validation_exceptions_total" not in counted


async def test_the_offer_gives_a_chat_request() -> None:
    """Made from what the payload holds when it is taken, as plugins further in may have edited it."""
    exchange = parsed(request(), endpoint=RESPONSES)
    await serve(exchange, ResponsesRequest(), answer)
    exchange[PAYLOAD].edit()["model"] = "other"
    offer = exchange[OFFER]
    assert offer.endpoint is CHAT_COMPLETIONS
    assert offer.translate().data == {"model": "other", "messages": [{"role": "user", "content": "Say hello"}]}


async def test_what_cannot_be_said_is_refused_when_the_offer_is_taken() -> None:
    """And counted as an invalid request."""
    exchange = parsed(SERVERS_TOOL, endpoint=RESPONSES)
    await serve(exchange, ResponsesRequest(), answer)
    with counting() as counted, pytest.raises(InvalidRequest) as refused:
        exchange[OFFER].translate()
    assert refused.value.status == 400
    assert refused.value.param == "tools.0"
    assert counted["validation_exceptions_total"] == 1


@pytest.mark.parametrize("endpoint", [row for row in ENDPOINTS if row is not RESPONSES], ids=lambda row: row.path)
async def test_nothing_is_offered_for_other_apis(endpoint: Api) -> None:
    """Each translation has its own plugin."""
    exchange = parsed(request(), endpoint=endpoint)
    await serve(exchange, ResponsesRequest(), answer)
    assert OFFER not in exchange
