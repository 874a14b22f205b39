"""The server in one process: its start, its orderly end, and the protocols that it can run on."""

import asyncio
import gc
import json
from types import ModuleType

import pytest

from kernel import ConfigError
from plugins.host.memory import GC_THRESHOLDS
from tests.host.support import serving
from tests.host.wire import parse_answers, request, until


def test_stream_is_ended_in_band(terminal: ModuleType) -> None:
    """A stream that outlasts the grace time ends with the reason inside it, as a whole HTTP answer."""
    with serving(grace_seconds=0) as served:
        client = served.client().send(request("/stream"))
        client.read_until(b"first,")
        served.server.should_exit = True
        (answer,) = client.answers()
    assert answer.body == b"first,broken: the server is shutting down"
    assert served.server.stopped_well


def test_waiting_request_is_declined(terminal: ModuleType) -> None:
    """A request that still waits for its answer after the grace time gets a 503."""
    with serving(grace_seconds=0) as served:
        client = served.client().send(request("/hold"))
        until(lambda: terminal.SEEN)
        served.server.should_exit = True
        (answer,) = client.answers()
    assert (answer.status, answer.body) == (503, b"the server is shutting down")
    assert answer.headers["connection"] == "close"


def test_request_queued_behind_a_stream_is_declined(terminal: ModuleType) -> None:
    """A request that only begins when the grace time is over is declined as well."""
    with serving(grace_seconds=0) as served:
        client = served.client().send(request("/stream") + request("/hold"))
        client.read_until(b"first,")
        served.server.should_exit = True
        stream, held = client.answers()
    assert stream.body.startswith(b"first,broken")
    assert held.status == 503


def test_grace(terminal: ModuleType) -> None:
    """Within the grace time requests finish as if nothing were; idle connections and the port are closed at once."""
    with serving(grace_seconds=60) as served:
        idle = served.client().send(request("/echo", b"x"))
        idle.read_until(b"\r\n\r\nx")
        busy = served.client().send(request("/stream"))
        busy.read_until(b"first,")
        served.server.should_exit = True
        assert parse_answers(idle.read_all())[0].body == b"x"
        with pytest.raises(ConnectionRefusedError):
            served.client()
        served.call(terminal.RELEASED.set)
        assert busy.answers()[0].body == b"first,last,end"


def test_client_that_does_not_read(terminal: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that cannot even send its last words is cut, and the server ends nevertheless."""
    monkeypatch.setattr("plugins.host.server.INTERRUPT_SECONDS", 0.2)

    async def endless(_self: object) -> object:
        while True:
            yield bytes(65536)
            await asyncio.sleep(0)

    monkeypatch.setattr(terminal.Terminal, "chunks", endless)
    with serving(grace_seconds=0) as served:
        client = served.client().send(request("/early"))
        client.read_until(b"\r\n\r\n")
        until(lambda: served.connection().flow.write_paused)
        served.server.should_exit = True
    assert served.server.stopped_well
    client.connection.close()


def test_plugin_that_does_not_stop(terminal: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that never stops does not keep the server from ending, and the end is then no good one."""
    monkeypatch.setattr("plugins.host.server.STOP_SECONDS", 0.1)
    with serving("plugins: {terminal: {config: {stop_forever: true}}}") as served:
        pass
    assert not served.server.stopped_well


def test_start_fails(terminal: ModuleType) -> None:
    """A configuration that cannot be used reaches the caller as the problems that it has."""
    with (
        pytest.raises(ConfigError, match="did you mean 'limit'"),
        serving("plugins: {terminal: {config: {limt: 1}}}"),
    ):
        pass


def test_garbage_collector(terminal: ModuleType) -> None:
    """What was made at start is out of the collector's way, and it runs less often."""
    with serving():
        assert gc.get_threshold() == GC_THRESHOLDS
        assert gc.get_freeze_count() > 0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_h11(terminal: ModuleType, loop: str) -> None:
    """The same application serves on uvicorn's h11 protocol: answers, streams, 413, and a stop."""
    with serving(loop=loop, http="h11", grace_seconds=0) as served:
        raw = request("/echo", b"1") + request("/echo", b"2", "connection: close")
        assert [answer.body for answer in served.client().send(raw).answers()] == [b"1", b"2"]
        (large,) = served.client().send(request("/echo", bytes(9000))).answers()
        assert (large.status, large.headers["connection"]) == (413, "close")
        (missing,) = served.client().send(request("/nowhere", b"", "connection: close")).answers()
        assert json.loads(missing.body)["error"]["code"] == "not_found"
        client = served.client().send(request("/stream"))
        client.read_until(b"first,")
        served.server.should_exit = True
        assert client.answers()[0].body == b"first,broken: the server is shutting down"


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 4\r\ncontent-length: 5\r\n\r\nabcd",
        b"content-length: 4x\r\n\r\nabcd",
        b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_h11_smuggling(terminal: ModuleType, framing: bytes) -> None:
    """Bad framing ends the connection on h11 as well, and what is hidden behind it is no request."""
    with serving(http="h11") as served:
        raw = b"POST /echo HTTP/1.1\r\nhost: test\r\n" + framing + request("/hold")
        answers = served.client().send(raw).answers()
    assert all(answer.status >= 400 for answer in answers)
    assert "hold" not in terminal.SEEN
