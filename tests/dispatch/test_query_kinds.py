"""Answers to embeddings, ranks and tokenizers that are no JSON: they pass as what they are, whole or not at all."""

import orjson
import pytest

from kernel import Endpoint
from plugins.endpoints import DETOKENIZE, EMBEDDINGS, RERANK, SCORE, TOKENIZE
from tests.dispatch.scripted import OK, Seen, framed, scripted
from tests.dispatch.support import ask, exchange_of, running, single

pytestmark = pytest.mark.anyio

METADATA = orjson.dumps({"data": [{"index": number, "start": number * 8} for number in range(1000)]}).decode()
BYTES = b"\x00\xff\r\n\r\n{\x80"


@pytest.mark.parametrize("endpoint", [EMBEDDINGS, RERANK, SCORE, TOKENIZE, DETOKENIZE], ids=lambda row: row.name)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("application/octet-stream", BYTES),
        ("application/octet-stream", b""),
        ("Application/JSON; charset=utf-8", b'{"a":1}'),
        ("application/problem+json", b"[]"),
        ("text/plain; charset=utf-8", b"a"),
    ],
)
async def test_whatever_a_worker_answers_passes_as_what_it_is(endpoint: Endpoint, kind: str, said: bytes) -> None:
    """Embeddings of vLLM are bytes if asked so, and a header then tells how to read them."""

    async def answer(seen: Seen) -> None:
        await seen.answer(said, "200 OK", f"content-type: {kind}", f"metadata: {METADATA}", "x-secret: y")

    async with scripted(answer) as worker, running(single(worker.url)) as dispatch:
        got = await ask(dispatch, exchange_of(b'{"model":"m","encoding_format":"bytes"}', endpoint=endpoint))
    assert got.body == said
    assert got.reply is not None
    assert got.reply.headers == [(b"content-type", kind.encode()), (b"metadata", METADATA.encode())]


async def test_a_body_in_pieces_passes_too() -> None:
    """A worker may send the bytes of one text after those of another."""

    async def answer(seen: Seen) -> None:
        head = b"content-type: application/octet-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        await seen.send(OK + head, framed(BYTES), framed(BYTES), framed(b""))

    async with scripted(answer) as worker, running(single(worker.url)) as dispatch:
        got = await ask(dispatch, exchange_of(b'{"model":"m"}', endpoint=EMBEDDINGS))
    assert got.body == BYTES * 2


BINARY = b"content-type: application/octet-stream\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        BINARY + b"content-length: 9\r\n\r\nhalf",
        BINARY + b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        BINARY + b"\r\nwhole or not",
        BINARY + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
        b"content-type: text/html\r\ncontent-length: 2\r\n\r\n{}",
        b"content-type: application/problem+json\r\ncontent-length: 1\r\n\r\n{",
    ],
)
async def test_bytes_that_may_be_cut_are_not_passed_on(raw: bytes) -> None:
    """Nor is a page that something between here and the worker has made."""

    async def answer(seen: Seen) -> None:
        await seen.send(OK + raw)
        await seen.hang_up()

    async with scripted(answer) as worker, running(single(worker.url)) as dispatch:
        assert (await ask(dispatch, exchange_of(b'{"model":"m"}', endpoint=EMBEDDINGS))).error.status == 502
        assert len(worker.seen) == 1
