"""The embedded default: its configuration, what it tells a newcomer, and that its workers end with it."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel import build
from plugins import STANDARD
from plugins.configuration import Document
from plugins.dispatch.embedded import launcher
from plugins.host import demo
from plugins.host.cli import cli
from tests.host.process import alive
from tests.host.wire import Client, request, until

installed = pytest.mark.skipif(launcher.missing() is not None, reason="needs the packages of the demo")


def test_configuration() -> None:
    """The text is a usable configuration whatever the number of workers."""
    for urls in (demo.NO_WORKER, ("http://127.0.0.1:1", "http://127.0.0.1:2")):
        document = Document.parse(demo.configuration(urls), "(embedded default)")
        assembly = build(STANDARD, document)
        dispatch = assembly.plugins["dispatch"]
        assert [pool.model for pool in dispatch.pools] == ["smollm2"]  # type: ignore[attr-defined]
        assert [pool.workers for pool in dispatch.pools] == [urls]  # type: ignore[attr-defined]
        assert {"chat_completions", "messages"} < {*dispatch.pools[0].engine.apis}  # type: ignore[attr-defined]
        assert document.settings().listen == "127.0.0.1:8000"


@pytest.mark.parametrize(
    ("listen", "base"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("0.0.0.0:81", "http://127.0.0.1:81"),
        ("[::]:81", "http://[::1]:81"),
        ("192.0.2.1:81", "http://192.0.2.1:81"),
    ],
)
def test_invitation(listen: str, base: str) -> None:
    """The three commands are such that a shell takes them, for the address that can be reached."""
    lines = [shlex.split(line) for line in demo.invitation(listen).splitlines() if line.startswith("  ")]
    plain, streamed, plugins = lines
    url = f"{base}/v1/chat/completions"
    assert plain[:3] == ["curl", url, "-d"]
    assert streamed[:4] == ["curl", "-N", url, "-d"]
    assert json.loads(plain[3])["model"] == "smollm2"
    assert json.loads(streamed[4]) == {**json.loads(plain[3]), "stream": True}
    assert plugins[-1] == "plugins"


def test_own_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third command calls this program: by its name if the shell finds it, else by its path."""
    script = tmp_path / "kernel"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demo.own_command() == "kernel"
    monkeypatch.setenv("PATH", "/nowhere")
    assert demo.own_command() == f"{tmp_path.name}/kernel"
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    assert demo.own_command().endswith(" -m plugins.host")


def test_packages_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its packages the command says what to install, and exits with 2."""
    monkeypatch.setattr(demo, "missing", lambda: "the workers need packages, run:\n  pip install this")
    result = CliRunner().invoke(cli, ["run", "--listen", "127.0.0.1:0"])
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "kernel: error: the workers need packages, run:",
        "kernel: error:   pip install this",
    ]


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@installed
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_run(number: signal.Signals, workers: str) -> None:
    """It starts, tells what to try, answers, and its workers end with it, also when it is killed."""
    command = [sys.executable, "-m", "plugins.host", "run", "--listen", "127.0.0.1:0", "--workers", workers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.endswith(" plugins\n"):
                break
        assert any("ready (2/2)" in line for line in lines)
        url, body = next(shlex.split(line) for line in lines if "curl http" in line)[1::2]
        host, _, port = url.split("/")[2].rpartition(":")
        small = json.dumps({**json.loads(body), "max_tokens": 3}).encode()
        raw = request("/v1/chat/completions", small, "connection: close")
        (answer,) = Client.to((host, int(port))).send(raw).answers()
        assert json.loads(answer.body)["choices"][0]["message"]["content"]
        started = children_of(process.pid)
        assert len(started) == (2 if workers == "1" else 4)
        process.send_signal(number)
        assert process.wait(30) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        until(lambda: alive(started) == [])


@installed
def test_stopped_before_it_is_ready() -> None:
    """A signal while the workers start ends everything in order."""
    command = [sys.executable, "-m", "plugins.host", "run", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        started = until(lambda: children_of(process.pid))
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 1
        assert process.stderr.read() == "kernel: error: stopped before it was ready\n"
        assert alive(started) == []
