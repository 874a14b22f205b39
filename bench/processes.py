"""The processes of a run: where they are pinned, when they are ready, what they spent, and that they end."""

import asyncio
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

from bench.load import BenchError

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0

_ROOT: Final = Path(__file__).parents[1]
_PROBE: Final = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>
_CPUCLOCK_SCHED: Final = 2  # as in clock_getcpuclockid(3) on Linux


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


@contextmanager
def running(arguments: Sequence[str], cores: Collection[int], *, quiet: bool = False) -> Iterator[int]:
    """Run `python -m ARGUMENTS` on `cores` for the length of a `with` block, and not longer than this process."""

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROMETHEUS_MULTIPROC")}
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if quiet else None,
        env=environment,
        cwd=_ROOT,
        preexec_fn=prepare,  # noqa: PLW1509 - this process has no threads
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def processor_seconds(pid: int) -> float:
    """The time that a process spent on processors, user and system, its children not counted.

    The sum of the two fields of /proc/PID/stat, in nanoseconds and not in ticks of ten milliseconds.
    """
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def wait_until_ready(port: int, what: str, pid: int, *, healthy: bool) -> None:
    """Return when the process answers HTTP, or with `healthy` when it answers that it is.

    Raises:
        BenchError: it does not within `START_SECONDS`, or has ended.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and not _has_ended(pid):
        status = await _probe(port)
        if status == 200 or (status is not None and not healthy):
            return
        await asyncio.sleep(0.05)
    raise BenchError(f"{what} did not start")


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


async def _probe(port: int) -> int | None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    try:
        writer.write(_PROBE)
        async with asyncio.timeout(1.0):
            line = await reader.readline()
        return int(line.split()[1])
    except (OSError, TimeoutError, IndexError, ValueError):
        return None
    finally:
        writer.close()
