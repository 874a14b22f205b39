"""Owns one embedded worker's process, and what the process writes."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import aiohttp
from attrs import frozen

from kernel import KernelError

PAUSE = 0.05  # seconds between two looks at a process
_PROGRAM = Path(__file__).with_name("llamacpp.py")
_TAIL = 2000  # bytes of what a worker said last


class EmbeddedError(KernelError):
    """The embedded workers cannot start; the message says why, and what to do where that is known."""


@frozen(eq=False)
class WorkerProcess:
    """One worker's process and the files that take what it writes."""

    number: int
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    @classmethod
    def spawn(cls, number: int, *options: str) -> "WorkerProcess":
        """Start the program, whose end is tied to that of this process and of the calling thread.

        Raises EmbeddedError when the system has no room for it.
        """
        try:
            with contextlib.ExitStack() as failure:
                # Files without a name: they are gone with their last user, however that one ends.
                output = failure.enter_context(tempfile.TemporaryFile())
                errors = failure.enter_context(tempfile.TemporaryFile())
                process = subprocess.Popen(  # noqa: S603 - our own program with options of our own making
                    [sys.executable, "-P", str(_PROGRAM), *options],  # -P: its folder is no place for imports
                    stdin=subprocess.PIPE,  # never written to: its end says that this process is gone
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C is for the kernel alone, which then ends its workers
                )
                failure.pop_all()
        except OSError as fault:
            raise EmbeddedError(f"embedded worker {number} cannot be started: {fault}") from fault
        return cls(number, process, output, errors)

    async def become_ready(self, session: aiohttp.ClientSession) -> str:
        """Wait until the worker answers that it is healthy, and return its URL; no time limit of its own."""
        while (code := self.process.poll()) is None:
            if (url := self._url()) and await _is_healthy(session, url):
                return url
            await asyncio.sleep(PAUSE)
        raise EmbeddedError(f"embedded worker {self.number} ended early with exit code {code}{self.last_words()}")

    def _url(self) -> str | None:
        """Return the URL on the program's first line, or None while that is not complete."""
        # pread leaves the file's position, which the child shares, where the child writes next
        line, end, _ = os.pread(self.output.fileno(), _TAIL, 0).partition(b"\n")
        return line.decode().removeprefix("READY ") if end else None

    def last_words(self) -> str:
        """Return what the program complained about last, set below the message that it belongs to."""
        descriptor = self.errors.fileno()
        start = max(0, os.fstat(descriptor).st_size - _TAIL)
        lines = os.pread(descriptor, _TAIL, start).decode(errors="replace").splitlines()
        return "\n  ".join([", it said:", *lines]) if lines else ""

    def end(self) -> None:
        """Kill the process if it still runs, and release everything that it held here."""
        with self.process, self.output, self.errors:
            self.process.kill()


async def _is_healthy(session: aiohttp.ClientSession, url: str) -> bool:
    """Ask the worker once."""
    try:
        async with session.get(f"{url}/health") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
