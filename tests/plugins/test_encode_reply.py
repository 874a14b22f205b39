"""The promise of `encode_reply`: data becomes JSON, and everything else passes."""

import orjson
import pytest

from kernel import BytesReply, DataReply, Exchange
from kernel.testing import build_exchange, run_chain
from plugins.encode_reply import EncodeReply
from tests.plugins.support import stream

pytestmark = pytest.mark.anyio


def an_exchange() -> Exchange:
    """An exchange of no matter which endpoint."""
    return build_exchange()


async def test_data_becomes_json() -> None:
    """Data goes out as UTF-8 JSON with its status, its media type and its own headers."""
    data = {"text": "caf\u00e9 \u2603", "null": None, "text.format": {"schema_": 1}}
    reply = await run_chain([EncodeReply()], an_exchange(), DataReply(data, 201, [(b"x-own", b"1")]))

    assert isinstance(reply, BytesReply)
    assert orjson.loads(reply.body) == data
    assert reply.status == 201
    assert reply.headers == [(b"content-type", b"application/json"), (b"x-own", b"1")]


async def test_media_type_of_the_reply_stands() -> None:
    """A reply that names its own media type has one, not two."""
    headers = [(b"Content-Type", b"application/problem+json")]

    reply = await run_chain([EncodeReply()], an_exchange(), DataReply({}, headers=headers))

    assert reply.headers == headers


async def test_bytes_and_streams_pass_untouched() -> None:
    """What is bytes already is the same object further out."""
    for reply in (BytesReply(b"{ }"), stream(b"data: x\n\n")):
        assert await run_chain([EncodeReply()], an_exchange(), reply) is reply


@pytest.mark.parametrize("data", [object(), {1: 2}, "\ud800", 2**80])
async def test_data_that_is_no_json_is_a_fault(data: object) -> None:
    """What cannot be encoded raises, and the encoder is named for it."""
    exchange = an_exchange()

    with pytest.raises(orjson.JSONEncodeError) as raised:
        await run_chain([EncodeReply()], exchange, DataReply(data))

    assert exchange.culprit(raised.value) == "EncodeReply"
