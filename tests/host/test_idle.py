"""How long a connection may be idle: it has one timer, which goes off too early rather than too late."""

from types import ModuleType

import pytest

from plugins.host.idle import NEVER
from tests.host.malformed import POST
from tests.host.support import Served, serving
from tests.host.wire import request, until


@pytest.mark.parametrize("begun", [b"", POST, b"\r\n\r\n"])
def test_a_head_that_does_not_come(
    loop: str, terminal: ModuleType, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """A connection that has not sent one in time is closed, whatever else it has sent."""
    monkeypatch.setattr("plugins.host.head.HEAD_SECONDS", 0.2)
    monkeypatch.setattr("plugins.host.idle.HEAD_SECONDS", 0.2)
    with serving(loop=loop) as served:
        assert served.client().send(begun).read_all() == b""


def test_a_connection_that_is_not_used_any_more(served: Served) -> None:
    """It is closed some time after its last answer, and each answer begins that time anew."""
    client = served.client()
    until(lambda: served.server.server_state.connections)
    connection = served.connection()
    connection.timeout_keep_alive = 0.3  # type: ignore[assignment]
    for number in range(3):
        client.send(request("/echo", b"%d" % number))
        client.read_until(b"\r\n\r\n%d" % number)
    assert connection._timer_due < connection.loop.time() + 1
    assert client.read_all().count(b"HTTP/1.1 200") == 3


def test_a_connection_that_is_busy(served: Served, terminal: ModuleType) -> None:
    """It is not idle, however long its answer takes."""
    client = served.client().send(request("/stream"))
    client.read_until(b"first,")
    connection = served.connection()
    connection.timeout_keep_alive = 0.1  # type: ignore[assignment]
    served.call(connection._expire)
    until(lambda: connection._timer is None)
    served.call(terminal.RELEASED.set)
    assert client.read_all().endswith(b"end\r\n0\r\n\r\n")


def test_the_rest_of_a_body_behind_its_answer(served: Served) -> None:
    """A client that goes on to send what nobody reads is not idle, and its connection can be used again."""
    head = b"POST /nowhere HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n\r\n"
    client = served.client().send(head)
    client.read_until(b"not_found")
    connection = served.connection()
    until(lambda: connection._due < NEVER)
    due = connection._due
    connection.timeout_keep_alive += 1  # a clock that counts milliseconds may not have gone on
    client.send(b"1234")
    until(lambda: connection._due > due)
    client.send(b"5678", request("/echo", b"next", "connection: close"))
    assert client.answers()[-1].body == b"next"
