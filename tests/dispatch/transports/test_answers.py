"""Answers that are well: how they are read, however they are cut into packets."""

import pytest

from plugins.dispatch.client import Client
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, sized
from tests.dispatch.transports.peer import says, worker

pytestmark = pytest.mark.anyio

WHOLE = {
    "length": (sized(b'{"ok":true}', b"content-type: application/json"), b'{"ok":true}'),
    "no body": (sized(b""), b""),
    "chunked": (OK + CHUNKED + framed(b"data: 1\n\n", b"x", b"data: [DONE]\n\n"), b"data: 1\n\nxdata: [DONE]\n\n"),
    "chunked and empty": (OK + CHUNKED + framed(), b""),
    "chunk extension": (OK + CHUNKED + b'3;a=b;c="d e"\r\nabc\r\n0\r\n\r\n', b"abc"),
    "chunk size in capitals and with zeros": (OK + CHUNKED + b"000A\r\n0123456789\r\n000\r\n\r\n", b"0123456789"),
    "trailers": (OK + CHUNKED + b"3\r\nabc\r\n0\r\nx-sum: 1\r\nx-end: 2\r\n\r\n", b"abc"),
    "coding in capitals": (OK + b"Transfer-Encoding: Chunked\r\n\r\n" + framed(b"abc"), b"abc"),
    "interim answers": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + sized(b"abc"), b"abc"),
    "line ends in the body": (sized(b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 3\r\n\r\nabc", b"abc"),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_is_read_to_its_end(client: Client, name: str) -> None:
    """Then its connection serves the next request."""
    raw, body = WHOLE[name]
    async with worker(says(raw)) as server:
        for _ in range(3):
            assert (await fetch(client, call(server.url))).whole == (200, body)
        # lean does not learn where trailers end, and closes rather than guess what is behind them
        assert server.connections <= (3 if name == "trailers" else 1)


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_may_be_cut_anywhere(client: Client, name: str) -> None:
    """Two packets, for each place where one can end."""
    raw, body = WHOLE[name]
    for place in range(1, len(raw)):
        async with worker(says(raw[:place], raw[place:])) as server:
            assert (await fetch(client, call(server.url))).whole == (200, body), place


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_may_come_byte_by_byte(client: Client, name: str) -> None:
    """As many packets as it has bytes."""
    raw, body = WHOLE[name]
    async with worker(says(*(raw[place : place + 1] for place in range(len(raw))))) as server:
        assert (await fetch(client, call(server.url))).whole == (200, body)


@pytest.mark.parametrize("head", [OK + b"\r\n", b"HTTP/1.0 200 OK\r\n\r\n", OK + b"connection: close\r\n\r\n"])
@pytest.mark.parametrize("body", [b"", b"abc", b"x" * 1_000_000])
async def test_an_answer_without_a_length_ends_with_its_connection(client: Client, head: bytes, body: bytes) -> None:
    """So it always did; whether that was the end, only its content can tell."""
    async with worker(says(head + body, keep=False)) as server:
        assert (await fetch(client, call(server.url))).whole == (200, body)
        assert (await fetch(client, call(server.url))).whole == (200, body)


@pytest.mark.parametrize(
    ("method", "raw", "status"),
    [
        ("HEAD", OK + b"content-length: 100\r\n\r\n", 200),
        ("HEAD", OK + CHUNKED, 200),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 100\r\n\r\n", 304),
    ],
)
async def test_some_answers_have_no_body(client: Client, method: str, raw: bytes, status: int) -> None:
    """Whatever their head says of a length."""
    async with worker(says(raw)) as server:
        for _ in range(2):
            assert (await fetch(client, call(server.url, method, b""))).whole == (status, b"")
        assert server.connections == 1


@pytest.mark.parametrize("status", [200, 201, 302, 400, 404, 429, 500, 503, 599])
async def test_every_final_status_is_an_answer(client: Client, status: int) -> None:
    """Nothing is followed, retried or raised."""
    async with worker(says(sized(b"no", b"location: /elsewhere", status=b"%d X" % status))) as server:
        assert (await fetch(client, call(server.url))).whole == (status, b"no")


async def test_headers_are_found_in_any_case(client: Client) -> None:
    """Their values lose the space around them, nothing else."""
    raw = sized(b"", b"X-One:1", b"x-two: \t two  words \t", b"X-EMPTY:", b"x-high: \xe9")
    async with worker(says(raw)) as server:
        headers = (await fetch(client, call(server.url))).headers
    assert (headers["x-one"], headers["X-Two"], headers["x-empty"]) == ("1", "two  words", "")
    assert "X-HIGH" in headers
    assert headers.get("x-three", "none") == "none"
    assert {name.lower() for name in headers} == {"x-one", "x-two", "x-empty", "x-high", "content-length"}
    assert ("x-one", "1") in [(name.lower(), value) for name, value in headers.items()]


async def test_a_body_is_not_decoded(client: Client) -> None:
    """What is in it is the business of whoever asked."""
    async with worker(says(sized(b"\x1f\x8bnot gzip", b"content-encoding: gzip"))) as server:
        got = await fetch(client, call(server.url))
    assert got.whole == (200, b"\x1f\x8bnot gzip")


async def test_an_answer_of_many_megabytes_comes_whole(client: Client) -> None:
    """In a length and in chunks."""
    body = bytes(range(256)) * 40_000
    async with worker(says(sized(body))) as server:
        assert (await fetch(client, call(server.url))).whole == (200, body)
    chunked = OK + CHUNKED + framed(*(body[place : place + 70_001] for place in range(0, len(body), 70_001)))
    async with worker(says(chunked)) as server:
        assert (await fetch(client, call(server.url))).whole == (200, body)
