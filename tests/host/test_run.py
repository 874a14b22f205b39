"""`kernel run` in a process of its own: how it starts, why it does not, and how signals end it."""

import json
import signal
import socket
from pathlib import Path

import pytest

from plugins.host.failure import Failure
from plugins.host.instance import find_instances
from plugins.host.listener import bind
from plugins.host.serve import Service
from plugins.host.source import Source
from tests.host.process import CHAT, FakeWorker, config_text, running, start
from tests.host.wire import until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop(config: Path, number: signal.Signals) -> None:
    """A signal ends it with 0: an open stream gets its error inside it, and nothing is left behind."""
    with running(config) as kernel:
        assert kernel.ask(body={"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).status == 200
        stream = kernel.open_stream()
        kernel.signal(number)
        (answer,) = stream.answers()
        assert b"shutting_down" in answer.body
        assert not answer.body.endswith(b"data: [DONE]\n\n")
        assert kernel.wait() == 0
        assert find_instances(config) == []
        assert kernel.events()[-1] == "server.stopped"
        assert {"level", "timestamp", "event"} <= kernel.logged()[0].keys()


def test_second_signal(config: Path, worker: FakeWorker) -> None:
    """A second signal ends it at once, with 1, however long the grace time is."""
    config.write_text(config_text(worker).replace("0.3", "600"))
    with running(config) as kernel:
        stream = kernel.open_stream()
        kernel.signal(signal.SIGTERM)
        until(lambda: "server.stopping" in kernel.events())
        kernel.signal(signal.SIGTERM)
        assert kernel.wait() == 1
        assert find_instances(config) == []
        stream.connection.close()


def test_port_in_use(config: Path) -> None:
    """A port that is taken is one line and exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with start(config, "--listen", address) as process:
            assert process.wait(20) == 1
    expected = f"kernel: error: cannot listen on {address}: the address is in use already\n"
    assert Path(f"{config}.err").read_text() == expected


def test_port_taken_while_it_starts(config: Path, tmp_path: Path) -> None:
    """A port that another process listens on before we do is the same one line, though it could be bound."""
    source = Source(config)
    with bind("127.0.0.1", 0) as ours, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(ours.getsockname())
        other.listen()
        with pytest.raises(Failure, match="in use already"):
            Service(source, source.load().settings(), ours).run(lambda: None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listen: 0.0.0.0:0\n", "0.0.0.0:0 can be reached from other machines"),
        ("listen: '[::]:0'\n", "[::]:0 can be reached from other machines"),
        ("lisen: 127.0.0.1:0\n", ":1: lisen: unknown key 'lisen', did you mean 'listen'?"),
        ("plugins: {dispatch: {enabled: false}}\n", "'dispatch' is required and cannot be switched off"),
        ("a: [", ":1: "),
    ],
)
def test_unusable_configuration(tmp_path: Path, text: str, problem: str) -> None:
    """What cannot be used is named, without a traceback, and exit code 2."""
    config = tmp_path / "bad.yaml"
    config.write_text(text)
    with start(config) as process:
        assert process.wait(20) == 2
    errors = Path(f"{config}.err").read_text()
    assert problem in errors
    assert all(line.startswith("kernel: error: ") for line in errors.splitlines())


def test_insecure(config: Path) -> None:
    """An address that others can reach is served when the command line allows it."""
    with running(config, "--listen", "0.0.0.0:0", "--insecure") as kernel:
        assert kernel.instance().state.listen.startswith("0.0.0.0:")
        assert kernel.ask("/livez", method="GET").status == 200


def test_request_errors(config: Path) -> None:
    """Bad requests over the wire get the API's envelope, and the server serves on."""
    with running(config) as kernel:
        raw = [
            kernel.client().send(b"POST %b HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\n{" % CHAT.encode()).end(),
            kernel.client().send(b"POST %b HTTP/1.1\r\nhost: t\r\ncontent-length: 11000000\r\n\r\n" % CHAT.encode()),
            kernel.client().send(b"nonsense\r\n\r\n"),
        ]
        answers = [client.answers()[0] for client in raw]
        assert [answer.status for answer in answers] == [400, 413, 400]
        assert all("message" in json.loads(answer.body)["error"] for answer in answers)
        assert kernel.ask(body={"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).status == 200
