"""What a request looks like on the wire."""

import socket
from collections.abc import Mapping

import pytest

from plugins.dispatch.client import Client
from plugins.dispatch.transports.lean import LeanClient
from plugins.dispatch.transports.lean.request import locate
from tests.dispatch.transports.exchange import call, fetch, sized
from tests.dispatch.transports.peer import Peer, worker

pytestmark = pytest.mark.anyio

HEADERS = {"content-type": "application/json", "x-request-id": "abc", "authorization": "Bearer secret"}


class Recorder:
    """Answers well, and notes each request."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    async def __call__(self, peer: Peer) -> None:
        """Answer for as long as the client stays."""
        while True:
            self.requests.append(await peer.request())
            await peer.send(sized(b"ok"))

    def split(self) -> tuple[str, list[str], bytes]:
        """The last request: its first line, its headers with their names in lower case, and its body."""
        head, _, body = self.requests[-1].partition(b"\r\n\r\n")
        line, *lines = head.decode("ascii").split("\r\n")
        parts = (text.partition(": ") for text in lines)
        return line, sorted(f"{name.lower()}: {value}" for name, _, value in parts), body


async def test_a_request_is_sent_as_it_was_given(client: Client) -> None:
    """Nothing is added but where to and how long."""
    seen = Recorder()
    async with worker(seen) as server:
        for body in (b'{"a":1}', b'{"a": 2, "b": "\xc3\xa9"}'):
            url = f"{server.url}/v1/chat/completions?a=b%20c"
            assert (await fetch(client, call(url, headers=HEADERS, body=body))).whole == (200, b"ok")
            line, headers, sent = seen.split()
            assert line == "POST /v1/chat/completions?a=b%20c HTTP/1.1"
            assert sent == body
            assert headers == sorted(
                [
                    f"host: 127.0.0.1:{server.port}",
                    f"content-length: {len(body)}",
                    *(f"{name}: {value}" for name, value in HEADERS.items()),
                ]
            )


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", b"", None), ("POST", b"", "0"), ("GET", b"x", "1"), ("PUT", b"", "0")],
)
async def test_an_empty_body_has_a_length_where_one_is_expected(
    client: Client, method: str, body: bytes, length: str | None
) -> None:
    """A server waits for the body of a POST that does not say that it has none."""
    seen = Recorder()
    async with worker(seen) as server:
        response = await client.send(call(server.url, method, body))
        response.close()
        line, headers, sent = seen.split()
    assert line == f"{method} / HTTP/1.1"
    lengths = [text.removeprefix("content-length: ") for text in headers if text.startswith("content-length")]
    assert lengths == ([length] if length else []) or (length is None and lengths == ["0"])
    assert sent == body


async def test_a_worker_may_have_an_address_of_version_six(client: Client) -> None:
    """It stands in brackets."""
    seen = Recorder()
    async with worker(seen, "::1") as server:
        assert (await fetch(client, call(server.url))).whole == (200, b"ok")
        assert f"host: [::1]:{server.port}" in seen.split()[1]


async def test_a_worker_may_have_a_name(client: Client) -> None:
    """It is resolved, and named to the worker."""
    seen = Recorder()
    async with worker(seen) as server:
        url = f"http://localhost:{server.port}"
        for _ in range(2):
            assert (await fetch(client, call(url), fresh=True)).whole == (200, b"ok")
        assert f"host: localhost:{server.port}" in seen.split()[1]


async def test_large_bodies_arrive_whole(client: Client) -> None:
    """Also if the worker reads slowly, and of every size round the ones where something changes."""
    piece = 256 * 1024
    sizes = [piece - 1, piece, piece + 1, 2 * piece, 2 * piece + 1, 10_000_000]
    seen = Recorder()
    async with worker(seen) as server:
        for size in sizes:
            body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            assert (await fetch(client, call(server.url, body=body))).whole == (200, b"ok")
            assert seen.split()[2] == body
        assert server.connections == 1


@pytest.mark.parametrize("bad", ["a\r\nx-evil: 1", "a\rb", "a\nb", "a\0b"])
@pytest.mark.parametrize("where", ["name", "value"])
async def test_no_header_can_bring_in_another_one(client: Client, where: str, bad: str) -> None:
    """It is refused before anything is sent."""
    headers = {bad: "1"} if where == "name" else {"x-good": bad}
    seen = Recorder()
    async with worker(seen) as server:
        with pytest.raises(ValueError, match=r"header|character|Newline"):
            await client.send(call(server.url, headers=headers))
        await fetch(client, call(server.url))
    assert len(seen.requests) == 1


@pytest.mark.parametrize(
    "headers",
    [{"": "1"}, {"a b": "1"}, {"a:": "1"}, {"x": "caf\xe9"}, {"x": "\u20ac"}, {"x": "a\tb"}, {"x": "\x7f"}]
    + [{name: "1"} for name in ("Content-Length", "transfer-encoding", "host", "connection", "expect", "upgrade")],
)
async def test_lean_refuses_headers_that_it_cannot_send(headers: Mapping[str, str]) -> None:
    """Those that are none, that an encoding would change, or that would say something else about the body."""
    client = LeanClient(60.0)
    with pytest.raises(ValueError, match="header"):
        await client.send(call("http://127.0.0.1:1", headers=headers))
    await client.close()


async def test_a_percent_sign_in_a_header_is_nothing_special() -> None:
    """Names are put into a template."""
    seen, client = Recorder(), LeanClient(60.0)
    async with worker(seen) as server:
        await fetch(client, call(server.url, headers={"x-%s%d%": "100 %s", "%": "%"}))
        assert {"x-%s%d%: 100 %s", "%: %"} <= set(seen.split()[1])
    await client.close()


@pytest.mark.parametrize(
    ("url", "origin", "lines"),
    [
        ("http://worker", ("worker", 80), "GET / HTTP/1.1\r\nhost: worker\r\n"),
        ("http://worker:80/a", ("worker", 80), "GET /a HTTP/1.1\r\nhost: worker\r\n"),
        ("http://WORKER:8000/A?b=C", ("worker", 8000), "GET /A?b=C HTTP/1.1\r\nhost: worker:8000\r\n"),
        ("http://[::1]/a", ("::1", 80), "GET /a HTTP/1.1\r\nhost: [::1]\r\n"),
        ("http://[fd00::2]:8000?a", ("fd00::2", 8000), "GET /?a HTTP/1.1\r\nhost: [fd00::2]:8000\r\n"),
    ],
)
def test_a_url_says_where_to_send(url: str, origin: tuple[str, int], lines: str) -> None:
    """And what to send first."""
    target = locate("GET", url)
    assert (target.origin, target.lines) == (origin, lines)


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", "https://worker/"),
        ("GET", "worker:8000"),
        ("GET", "http://"),
        ("GET", "http://:8000/"),
        ("GET", "http://user:secret@worker/"),
        ("GET", "http://worker:99999/"),
        ("GET", "http://worker:x/"),
        ("GET", "http://worker/a b"),
        ("GET", "http://worker/a\r\nx: 1"),
        ("GET", "http://worker/\xe9"),
        ("GET", "http://worker/#part"),
        ("GET /", "http://worker/"),
        ("", "http://worker/"),
        ("GET\r\n", "http://worker/"),
    ],
)
def test_a_url_that_cannot_be_sent_is_refused(method: str, url: str) -> None:
    """Before it could change what is sent."""
    with pytest.raises(ValueError, match=r"."):
        locate(method, url)


async def test_a_small_request_is_not_held_back() -> None:
    """What a connection has it sends at once; else a worker might wait for the end of a request."""
    client = LeanClient(60.0)
    async with worker(Recorder()) as server:
        await fetch(client, call(server.url))
        (pool,) = client._pools.values()
        (connection,) = pool._open
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await client.close()
