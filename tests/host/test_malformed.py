"""Malformed and oversized heads and bodies over real connections."""

import json
from functools import partial
from types import ModuleType

import pytest

from plugins.host.head import HEAD_BYTES
from tests.host.malformed import MALFORMED, POST, SMUGGLED, assert_refused
from tests.host.support import Served, serving
from tests.host.wire import request, until


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
def test_malformed(served: Served, terminal: ModuleType, raw: bytes) -> None:
    """What is not HTTP gets one 400 with an error object, the connection ends, and nothing in it is a request."""
    (answer,) = served.client().send(raw).answers()
    assert_refused(answer)
    assert "/hold" not in terminal.SEEN
    assert "hold" not in terminal.SEEN
    assert served.client().send(request("/echo", b"on", "connection: close")).answers()[0].body == b"on"


def test_endless_head(served: Served) -> None:
    """A header that goes on and on is refused when it is too large, though it never ends."""
    client = served.client().send(POST, b"x-endless: ")
    for _ in range(20 * HEAD_BYTES // 4096):
        client.send(b"a" * 4096)
    (answer,) = client.answers()
    assert_refused(answer)
    assert f"larger than {HEAD_BYTES} bytes" in json.loads(answer.body)["error"]["message"]


def test_large_head_within_the_limit(served: Served) -> None:
    """Headers up to the limit are accepted, also right behind a body of the same connection."""
    large = "x-large: " + "a" * (HEAD_BYTES - 1000)
    body = b"b" * 1000
    client = served.client()
    client.send(request("/echo", body) + request("/echo", b"2", large) + request("/echo", b"3", "connection: close"))
    assert [answer.body for answer in client.answers()] == [body, b"2", b"3"]


def test_head_behind_a_large_body(loop: str, terminal: ModuleType) -> None:
    """What counts for a head is the head alone, not the body that came in one part with its beginning."""
    with serving("plugins: {terminal: {config: {limit: 1000000}}}", loop) as served:
        client = served.client()
        until(lambda: served.server.server_state.connections)
        connection = served.connection()
        last = request("/echo", b"2", "connection: close")
        for part in (request("/echo", bytes(5 * HEAD_BYTES)) + last[:9], last[9:20], last[20:]):
            served.call(partial(connection.data_received, part))
        assert [answer.status for answer in client.answers()] == [200, 200]


def test_malformed_after_a_stream(served: Served, terminal: ModuleType) -> None:
    """An answer in progress is finished, whole, before what came behind its request is refused."""
    client = served.client().send(request("/stream"))
    client.read_until(b"first,")
    client.send(b"nonsense\r\n\r\n", SMUGGLED)
    until(lambda: served.connection()._deaf)
    served.call(terminal.RELEASED.set)
    stream, refusal = client.answers()
    assert (stream.status, stream.body) == (200, b"first,last,end")
    assert_refused(refusal)
    assert terminal.SEEN == ["stream"]


def test_malformed_body_of_a_queued_request(served: Served, terminal: ModuleType) -> None:
    """A request that waits for its turn and turns out malformed is never begun, and refused in its turn."""
    client = served.client().send(request("/stream"))
    client.read_until(b"first,")
    client.send(POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n")
    until(lambda: served.connection()._deaf)
    served.call(terminal.RELEASED.set)
    stream, refusal = client.answers()
    assert stream.body == b"first,last,end"
    assert_refused(refusal)
    assert terminal.SEEN == ["stream"]


def test_malformed_body_behind_its_own_answer(served: Served, terminal: ModuleType) -> None:
    """A body that turns out malformed while its answer is being sent does not corrupt that answer."""
    client = served.client().send(b"POST /early HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n")
    client.read_until(b"first,")
    client.send(b"zz\r\n", SMUGGLED)
    until(lambda: served.connection()._deaf)
    served.call(terminal.RELEASED.set)
    (answer,) = client.answers()
    assert (answer.status, answer.body) == (200, b"first,last,")
    assert terminal.SEEN == ["early"]


def test_malformed_body_ends_the_work(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the rest of a malformed body hears at once that there is none."""
    monkeypatch.setattr("plugins.host.protocol.LINGER_SECONDS", 600.0)
    client = served.client().send(POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n")
    client.read_until(b"malformed_request")
    until(lambda: not served.server.server_state.tasks)
    client.connection.close()
