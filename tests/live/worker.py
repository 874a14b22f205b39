"""One real server of an engine on loopback, as a process that does not outlive the test run."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from attrs import define, field

MODEL: Final = "smollm2"
START_SECONDS: Final = 600.0
STOP_SECONDS: Final = 20.0
_FOLLOW: Final = Path(__file__).with_name("follow.py")


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@define(eq=False)
class Worker:
    """A server: `role` is what it does in a pair, or None where it serves whole requests. A subclass is an engine."""

    name: str
    role: str | None
    folder: Path
    port: int = field(init=False, factory=free_port)
    side_port: int = field(init=False, factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is; the same after a restart."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it wrote since its last start."""
        return self.folder / f"{self.name}.log"

    def running(self) -> bool:
        """Whether its process has not ended."""
        if self.process is None:
            return False
        # it is left unreaped, so that nobody else gets its number while the group is still to be ended
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def start(self) -> None:
        """Start the process; it is not ready yet."""
        self.end()
        python, *words = self.command()
        follow = [python, str(_FOLLOW), str(os.getpid()), python, *words]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                follow, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self.variables(),
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until it answers that it is healthy."""
        until(self._healthy, START_SECONDS)

    def _healthy(self) -> bool:
        if not self.running():
            raise AssertionError(f"{self.name} ended early:\n{self.log.read_text(errors='replace')[-6000:]}")
        with contextlib.suppress(OSError):
            self.get("/health")
            return True
        return False

    def terminate(self) -> None:
        """Ask it to end, as an operator does."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGTERM)

    def end(self) -> None:
        """Ask it to end, and end it by force if it does not follow."""
        self.terminate()
        with contextlib.suppress(AssertionError):
            until(lambda: not self.running(), STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the server and the processes it started, all at once and without a word."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)  # they are a group of their own
            self.process.wait(STOP_SECONDS)
        self.process = None

    def get(self, path: str) -> str:
        """The text at a path."""
        with urlopen(self.url + path, timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of that name with those labels; 0 while there is none."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            series, _, value = line.rpartition(" ")
            found = dict(re.findall(r'(\w+)="([^"]*)"', series))
            if series.partition("{")[0] == name and labels.items() <= found.items():
                total += float(value)
        return total

    def computed(self) -> float:
        """How many tokens of prompts it has computed itself."""
        raise NotImplementedError

    def busy(self) -> float:
        """How many requests it runs, or holds for later."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The words that start it, its interpreter first."""
        raise NotImplementedError

    def variables(self) -> dict[str, str]:
        """The variables of its process."""
        raise NotImplementedError


def until(holds: Callable[[], bool], seconds: float) -> float:
    """Wait for a condition and give the seconds that it took; fails when it does not come true."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"the condition did not come true within {seconds:g} s"
        threading.Event().wait(0.1)
    return time.monotonic() - began


@contextmanager
def started(*workers: Worker) -> Iterator[None]:
    """Workers that start side by side and are ready in the block; they end with it."""
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.wait()
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.end()
