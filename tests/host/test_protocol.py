"""Bodies that are too large or cut short, upgrades, and how connections are set up."""

import socket
from types import ModuleType

import pytest

from tests.host.malformed import POST, SMUGGLED, assert_refused
from tests.host.support import Served, serving
from tests.host.wire import request, until


@pytest.mark.parametrize("framing", ["content-length: 9000", "transfer-encoding: chunked"])
def test_too_large_body(served: Served, terminal: ModuleType, framing: str) -> None:
    """A body over the limit gets a 413, the connection ends, and the body's rest is no request."""
    size = f"{9000:x}\r\n".encode() if "chunked" in framing else b""
    client = served.client().send(POST + framing.encode() + b"\r\n\r\n" + size + b"a" * 4096, SMUGGLED * 40)
    (answer,) = client.answers()
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert terminal.SEEN == ["echo"]


def test_too_large_body_that_is_sent_whole(served: Served, terminal: ModuleType) -> None:
    """A client that sends all of a large body before it reads gets its 413, and its connection is not reset."""
    size = 32 * 1024 * 1024
    client = served.client()
    client.connection.sendall(POST + f"content-length: {size}\r\n\r\n".encode() + bytes(size))
    client.connection.sendall(SMUGGLED)
    (answer,) = client.answers()
    assert answer.status == 413
    assert terminal.SEEN == ["echo"]


@pytest.mark.parametrize(
    "raw",
    [
        POST + b"content-length: 10\r\n\r\n",
        POST + b"content-length: 10\r\n\r\nabc",
        POST + b"transfer-encoding: chunked\r\n\r\n5\r\nab",
        POST + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
    ],
)
@pytest.mark.parametrize("separately", [True, False])
def test_body_cut_short(served: Served, terminal: ModuleType, raw: bytes, separately: bool) -> None:
    """A client that ends its side in the middle of a body gets a 400, and the connection ends."""
    client = served.client().send(raw)
    if separately:
        until(lambda: terminal.SEEN)
    (answer,) = client.end().answers()
    assert answer.status == 400
    assert answer.headers["connection"] == "close"
    assert b"ended before its announced length" in answer.body


def test_head_cut_short(served: Served, terminal: ModuleType) -> None:
    """A client that ends its side in the middle of its headers gets a 400."""
    (answer,) = served.client().send(POST[:-9]).end().answers()
    assert_refused(answer)
    assert terminal.SEEN == []


def test_end_after_a_request(served: Served, terminal: ModuleType) -> None:
    """A client that ends its side after a whole request has hung up: its work is stopped."""
    client = served.client().send(request("/hold"))
    until(lambda: terminal.SEEN)
    assert client.end().read_all() == b""
    until(lambda: terminal.GONE)


def test_end_without_a_request(served: Served) -> None:
    """A client that ends its side before it has asked anything gets nothing."""
    assert served.client().end().read_all() == b""


UPGRADE = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AA")


@pytest.mark.parametrize("body", [b"", b"body"])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_upgrade(served: Served, body: bytes, size: int) -> None:
    """A wish for another protocol is passed over: the request keeps its body, the connection goes on in HTTP/1.1."""
    last = request("/echo", b"last", "connection: upgrade, close", "upgrade: h2c")
    raw = request("/echo", body, *UPGRADE) + request("/echo", b"next", *UPGRADE) + last
    answers = served.client().send(*(raw[start : start + size] for start in range(0, len(raw), size))).answers()
    assert [(answer.status, answer.body) for answer in answers] == [(200, body), (200, b"next"), (200, b"last")]


def test_many_upgrades_at_once(served: Served) -> None:
    """However many wishes come in one part, each is passed over."""
    raw = request("/echo", b"", *UPGRADE) * 1500 + request("/echo", b"", "connection: close")
    assert len(served.client().send(raw).answers()) == 1501


def test_upgrade_does_not_hide_bad_framing(served: Served, terminal: ModuleType) -> None:
    """A request with a wish is held to the same rules as any other."""
    raw = request("/echo", b"body", *UPGRADE, "transfer-encoding: chunked") + SMUGGLED
    assert_refused(*served.client().send(raw).answers())
    assert terminal.SEEN == []


def test_expect_continue(served: Served) -> None:
    """A client that asks before it sends its body is told to go on."""
    client = served.client().send(POST + b"content-length: 4\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n")
    client.read_until(b"100 Continue")
    (answer,) = client.send(b"body").answers()
    assert answer.body == b"body"


def test_trailers(served: Served) -> None:
    """What a client sends behind a body in chunks is no header of its request, which goes on to workers."""
    chunked = POST + b"transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nx-late: 1\r\nauthorization: x\r\n\r\n"
    client = served.client().send(chunked)
    client.read_until(b"\r\n\r\nbody")
    assert {*dict(served.connection().cycle.scope["headers"])} == {b"host", b"transfer-encoding"}
    client.send(request("/echo", b"next", "connection: close"))
    assert client.answers()[-1].body == b"next"


@pytest.mark.parametrize("protocol", [0, socket.IPPROTO_TCP])
def test_no_delay(loop: str, terminal: ModuleType, protocol: int) -> None:
    """Small writes are not held back: Nagle's algorithm is off, also behind a socket that names no protocol."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    listener.bind(("127.0.0.1", 0))
    with serving(loop=loop, listener=listener) as served:
        client = served.client().send(request("/echo", b"x"))
        client.read_until(b"\r\n\r\nx")
        accepted = served.connection().transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        client.connection.close()


def test_no_server_header(served: Served) -> None:
    """Answers have a date and do not tell what made them."""
    (answer,) = served.client().send(request("/echo", b"x", "connection: close")).answers()
    assert "date" in answer.headers
    assert "server" not in answer.headers


def test_no_trust_in_forwarded_headers(served: Served) -> None:
    """A client cannot change the address that it seems to come from."""
    assert not served.server.config.proxy_headers
    assert served.server.config.access_log is False
