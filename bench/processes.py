"""The processes of a run: where they are pinned, when they are ready, what they hold, and that they end."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from plugins.host.instance import find_instances

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 10.0

_ROOT: Final = Path(__file__).parents[1]
_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>


class BenchError(Exception):
    """What was measured did not do what it had to, or cannot be measured here."""


@frozen
class Cores:
    """Which cores the gateway has to itself, and which everything else shares."""

    gateway: frozenset[int]
    others: frozenset[int]

    @classmethod
    def of_this_machine(cls) -> "Cores":
        """The first usable core for the gateway, the rest for the others; one core is shared by all."""
        first, *rest = sorted(os.sched_getaffinity(0))
        return cls(frozenset((first,)), frozenset(rest or (first,)))

    @property
    def shared(self) -> bool:
        """Whether the gateway has no core to itself."""
        return self.gateway == self.others


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


@contextmanager
def running(
    command: Sequence[str], cores: Collection[int], *, quiet: bool = False, piped: bool = False, told: bool = False
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command on `cores` for the length of a `with` block, and not longer than this process.

    `quiet`: what it says of errors goes nowhere. `piped`: what it prints can be read; `told`: its errors too.
    """

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROMETHEUS_MULTIPROC")}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else subprocess.DEVNULL,
        stderr=subprocess.PIPE if told else subprocess.DEVNULL if quiet else None,
        env=environment,
        cwd=_ROOT,
        text=True,
        preexec_fn=prepare,  # noqa: PLW1509 - this process has no threads
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def resident_bytes(pid: int) -> int:
    """The memory of a process that is in memory, shared libraries included."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(port: int, what: str, process: "subprocess.Popen[str]", path: str | None = "/health") -> None:
    """Return when the process answers HTTP, or when it answers on `path` that all is well.

    Raises:
        BenchError: it does not within `START_SECONDS`, or has ended.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        status = _status(port, path or "/")
        if status == 200 or (status is not None and path is None):
            return
        time.sleep(0.05)
    raise BenchError(f"{what} did not start")


def wait_until_serving(process: "subprocess.Popen[str]", count: int) -> tuple[int, ...]:
    """The ids of the kernel's processes that serve, once there are so many.

    Raises:
        BenchError: there are not within `START_SECONDS`.
    """
    if count == 1:
        return (process.pid,)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for instance in find_instances(any_config=True):
            if instance.state.pid == process.pid and len(instance.processes) == count:
                return tuple(state.pid for state in instance.processes)
        time.sleep(0.05)
    raise BenchError(f"the kernel did not start {count} processes")


def fetch(port: int, path: str) -> bytes:
    """What a process answers to GET, with its head; nothing if it does not."""
    question = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    parts = []
    try:
        with socket.create_connection(("127.0.0.1", port), 5.0) as connection:
            connection.sendall(question.encode())
            while part := connection.recv(65536):
                parts.append(part)
    except OSError:
        pass
    return b"".join(parts)


def _status(port: int, path: str) -> int | None:
    try:
        return int(fetch(port, path).split(maxsplit=2)[1])
    except (IndexError, ValueError):
        return None
