"""Programs as a user starts them: the kernel and its workers, each a process of its own."""

import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from attrs import define, field

START_SECONDS = 60.0


@define(eq=False)
class Program:
    """A started process whose output lines are kept."""

    process: subprocess.Popen[str]
    lines: list[str] = field(factory=list)
    _new: "queue.Queue[str]" = field(factory=queue.Queue)
    _reader: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._new.put(line)
        self._new.put("")

    def close(self) -> None:
        """End the process if it runs, and what reads its output."""
        if self.process.poll() is None:
            self.kill()
        self._reader.join(START_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line not looked at yet that matches; fails when the program ends or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            line = self._new.get(timeout=max(deadline - time.monotonic(), 0.001))
            if found := re.search(pattern, line):
                return found
            assert line, f"the program ended without {pattern!r}:\n{''.join(self.lines)}"

    def stop(self) -> int:
        """End it as an operator does and give its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_SECONDS)

    def kill(self) -> None:
        """End it as the kernel of the operating system does."""
        self.process.kill()
        self.process.wait(START_SECONDS)


@contextmanager
def program(*words: str) -> Iterator[Program]:
    """`python -m WORDS`, ended with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started = Program(process)
    try:
        yield started
    finally:
        started.close()


@define(eq=False)
class Kernel:
    """A kernel that serves at `url`."""

    program: Program
    url: str
    file: Path | None

    def get(self, path: str) -> str:
        """The text at a path."""
        with urlopen(self.url + path, timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def metric(self, line: str) -> float:
        """The value of one series, written as in Prometheus' text; 0 while it is not there."""
        found = re.search(rf"^{re.escape(line)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of an event so far."""
        parsed = [json.loads(line) for line in self.program.lines if line.startswith("{")]
        return [line for line in parsed if line["event"] == event]


@contextmanager
def kernel(folder: Path, text: str | None, *words: str) -> Iterator[Kernel]:
    """`kernel run` with a configuration, or with the embedded default for None, on a free port."""
    file = None
    if text is not None:
        file = folder / "kernel.yaml"
        file.write_text(text)
    with program("plugins.host", "run", *([str(file)] if file else []), "--listen", "127.0.0.1:0", *words) as started:
        address = started.wait_for(r'"listen": ?"([\d.:]+)".*server\.started')[1]
        yield Kernel(started, f"http://{address}", file)


@contextmanager
def stub(*words: str) -> Iterator[tuple[Program, str]]:
    """A stub worker in a process of its own, and its URL."""
    with program("plugins.dispatch.embedded.stub", *words) as started:
        yield started, started.wait_for(r"READY (\S+)")[1]


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a condition; fails when it does not come true."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true"
        threading.Event().wait(0.02)


def pools(*urls: str, more: str = "") -> str:
    """A configuration with one pool of plain workers."""
    return f"""plugins:
{more}
  dispatch:
    config:
      health: {{interval_seconds: 0.2, failures: 1}}
      pools:
        - {{model: stub, engine: openai, workers: {json.dumps(urls)}, policy: round_robin}}
"""
