"""Answers that can be read in more than one way, or that try to cost more than an answer may: refused, and closed."""

import pytest

from plugins.dispatch.client import Client, MalformedFault
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, lean_only, pair_up, sized
from tests.dispatch.transports.peer import says, worker

pytestmark = pytest.mark.anyio

LENGTH = b"content-length: 3\r\n"
END = b"\r\nabc"

HEADS = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "a page": b"<html>\r\n\r\n</html>",
    "an empty line before it": b"\r\n" + OK + LENGTH + END,
    "RTSP": b"RTSP/1.0 200 OK\r\n" + LENGTH + END,
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\n" + LENGTH + END,
    "HTTP/2": b"HTTP/2.0 200 OK\r\n" + LENGTH + END,
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n" + LENGTH + END,
    "a status of two digits": b"HTTP/1.1 20 OK\r\n" + LENGTH + END,
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n" + LENGTH + END,
    "a status of letters": b"HTTP/1.1 OK\r\n" + LENGTH + END,
    "another protocol's switch": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "a switch to nothing": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "a status below any class": b"HTTP/1.1 099 Early\r\n\r\n",
    "chunked in HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + CHUNKED + framed(b"abc"),
    "length and coding": OK + LENGTH + CHUNKED + framed(b"abc"),
    "coding and length": OK + b"transfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + framed(b"abc"),
    "two lengths": OK + LENGTH + b"content-length: 4\r\n" + END,
    "a list of lengths": OK + b"content-length: 3, 4\r\n" + END,
    "a negative length": OK + b"content-length: -3\r\n" + END,
    "a length with a plus": OK + b"content-length: +3\r\n" + END,
    "a hexadecimal length": OK + b"content-length: 0x3\r\n" + END,
    "an underscore in the length": OK + b"content-length: 1_0\r\n" + END,
    "no digits in the length": OK + b"content-length: many\r\n" + END,
    "an empty length": OK + b"content-length:\r\n" + END,
    "another coding": OK + b"transfer-encoding: gzip\r\n" + END,
    "a coding before chunked": OK + b"transfer-encoding: gzip, chunked\r\n\r\n" + framed(b"abc"),
    "a coding after chunked": OK + b"transfer-encoding: chunked, identity\r\n\r\n" + framed(b"abc"),
    "almost chunked": OK + b"transfer-encoding: xchunked\r\n\r\n" + framed(b"abc"),
    "chunked twice": OK + b"transfer-encoding: chunked\r\n" + CHUNKED + framed(b"abc"),
    "a folded header": OK + b"x: a\r\n b\r\n" + LENGTH + END,
    "a folded length": OK + b"content-length:\r\n 3\r\n" + END,
    "a space before the colon": OK + b"content-length : 3\r\n" + END,
    "a space in a name": OK + b"content length: 3\r\n" + END,
    "a header without a name": OK + b": 3\r\n" + LENGTH + END,
    "a line without a colon": OK + b"nothing\r\n" + LENGTH + END,
    "a NUL in a value": OK + b"x: a\0b\r\n" + LENGTH + END,
    "a bare CR in a value": OK + b"x: a\rb\r\n" + LENGTH + END,
    "a bare LF after a header": OK + b"x: a\n" + LENGTH + END,
}

LENIENT = {
    "an empty line before it", "RTSP", "HTTP/0.9", "HTTP/2", "a status below any class", "another protocol's switch",
    "a switch to nothing", "chunked in HTTP/1.0", "another coding", "a coding before chunked",
    "a coding after chunked", "almost chunked", "chunked twice", "a folded header", "a folded length",
    "a space before the colon", "a bare LF after a header", "a chunk that is too short", "a bare LF in an extension",
}  # fmt: skip
"""What aiohttp reads all the same: its parser for answers is a tolerant one."""

BODIES = {
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "letters": b"zz\r\nabc\r\n0\r\n\r\n",
    "a negative size": b"-3\r\nabc\r\n0\r\n\r\n",
    "a size with 0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "a size with a plus": b"+3\r\nabc\r\n0\r\n\r\n",
    "a space before the size": b" 3\r\nabc\r\n0\r\n\r\n",
    "an endless size": b"f" * 17 + b"\r\nabc\r\n0\r\n\r\n",
    "a chunk that is too long": b"3\r\nabcd\r\n0\r\n\r\n",
    "a chunk that is too short": b"3\r\nab\r\n0\r\n\r\n",
    "a bare LF in an extension": b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "a size in a trailer": b"3\r\nabc\r\n0\r\ncontent-length\r\n\r\n",
}


@pair_up("name", HEADS, LENIENT)
async def test_a_head_that_is_not_clear_is_refused(client: Client, name: str) -> None:
    """At once; it is never taken for an answer, nor its connection used again."""
    async with worker(says(HEADS[name])) as server:
        got = await fetch(client, call(server.url))
        assert type(got.fault) is MalformedFault, got
        assert got.status == 0
        await server.until_left()


@pair_up("name", BODIES, LENIENT)
async def test_chunks_that_are_none_are_refused(client: Client, transport: str, name: str) -> None:
    """At once; what came before them is delivered, by aiohttp not all of it, and it never looks whole."""
    async with worker(says(OK + CHUNKED + b"2\r\nok\r\n", BODIES[name])) as server:
        got = await fetch(client, call(server.url))
        assert got.status == 200
        assert type(got.fault) is MalformedFault
        assert got.body in (b"ok", b"okabc", b"okab\r") or (transport == "aiohttp" and got.body == b"")
        await server.until_left()


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("a status line", b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n"),
        ("a name", OK + b"x" * 100_000 + b": 1\r\n\r\n"),
        ("a value", OK + b"x: " + b"y" * 100_000 + b"\r\n\r\n"),
        ("a value without an end", OK + b"x: " + b"y" * 1_000_000),
    ],
)
async def test_a_head_that_is_too_large_is_refused(client: Client, name: str, raw: bytes) -> None:
    """TensorRT-LLM's are up to 80 KiB large."""
    async with worker(says(raw)) as server:
        assert type((await fetch(client, call(server.url))).fault) is MalformedFault
        await server.until_left()


@lean_only  # aiohttp limits the size of single headers, and nothing else
@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("many headers", OK + b"".join(b"x-%d: 1\r\n" % number for number in range(300)) + b"\r\n"),
        ("many headers with one name", OK + b"x: 1\r\n" * 300 + b"\r\n"),
        ("many large headers", OK + (b"x: " + b"y" * 40_000 + b"\r\n") * 3 + b"\r\n"),
        ("interim answers without end", b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000),
        ("an extension without end", OK + CHUNKED + b"3;" + b"x" * 1_000_000),
        ("zeros without end", OK + CHUNKED + b"0" * 1_000_000),
        ("a trailer without end", OK + CHUNKED + b"0\r\nx: " + b"y" * 1_000_000),
        ("trailers without end", OK + CHUNKED + b"0\r\n" + b"x: y\r\n" * 200_000),
    ],
)
async def test_no_part_of_an_answer_can_grow_without_end(client: Client, name: str, raw: bytes) -> None:
    """Each is refused with what was allowed before it."""
    async with worker(says(raw)) as server:
        assert type((await fetch(client, call(server.url))).fault) is MalformedFault
        await server.until_left()


async def test_a_large_head_is_read(client: Client) -> None:
    """TensorRT-LLM workers put a request's metrics into one header."""
    raw = sized(b"abc", b"x-metrics: " + b"m" * 78_000, *(b"x-%d: 1" % number for number in range(100)))
    async with worker(says(raw)) as server:
        got = await fetch(client, call(server.url))
    assert got.whole == (200, b"abc")
    assert len(got.headers["x-metrics"]) == 78_000
