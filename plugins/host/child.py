"""One of several processes on a port, as its supervisor holds it and as it knows its supervisor."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from attrs import define

SERVES: Final = b"S"
READY: Final = b"R"
"""What a process says: that it answers, signals too, and that its workers do."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds before a process that died is started anew; doubled as long as it dies before it serves."""

_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>


@define(eq=False)
class Child:
    """One process's place, whether or not it is occupied; `due` is when to fill it, by the monotonic clock.

    `serves` and `ready` are what the process said of itself, `failures` the starts in a row that did not serve.
    """

    process: subprocess.Popen[bytes] | None = None
    link: socket.socket | None = None
    serves: bool = False
    ready: bool = False
    failures: int = 0
    due: float = 0.0

    def start(
        self,
        arguments: Sequence[str],
        listener: socket.socket,
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
    ) -> socket.socket:
        """Start the process, which serves `listener` and has `descriptors`; returns the link, raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            passed = (listener.fileno(), theirs.fileno(), *descriptors)
            # -P keeps the current folder out of the import path, as the script `kernel` does
            program = [sys.executable, "-P", "-m", "plugins.host", "run"]
            try:
                self.process = subprocess.Popen(  # noqa: S603 - our own program
                    [*program, "--fd", str(passed[0]), "--link", str(passed[1]), *arguments],
                    pass_fds=passed,
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,  # Ctrl-C in a terminal is for the supervisor, which passes it on once
                )
            except OSError:
                ours.close()
                raise
        self.link = ours
        return ours

    def hears(self) -> bool:
        """Take what the process said; False once it can say no more."""
        said = b""
        if self.link is not None:
            with suppress(OSError):
                said = self.link.recv(16)
        if SERVES in said:
            self.serves, self.failures = True, 0
        if READY in said:
            self.ready = True
        return bool(said)

    def clear(self, moment: float) -> None:
        """Note at `moment` that the process has ended, and when the next one is due."""
        if self.link is not None:
            self.link.close()
        self.failures = 0 if self.serves else self.failures + 1
        self.due = moment + min(FIRST_PAUSE * 2**self.failures, LONGEST_PAUSE)
        self.process = self.link = None
        self.serves = self.ready = False


class Link:
    """The process's end of the connection to its supervisor."""

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor; from now on this process ends when its supervisor does, even if killed."""
        self._socket = socket.socket(fileno=descriptor)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # covers other systems, and a supervisor that died before the line above
        threading.Thread(target=self._end_with_supervisor, name="link", daemon=True).start()

    def tell(self, word: bytes) -> None:
        """Say `SERVES` or `READY`."""
        with suppress(OSError):  # the supervisor is gone, and so will be this process
            self._socket.send(word)

    def _end_with_supervisor(self) -> None:
        with suppress(OSError):
            while self._socket.recv(1):
                pass
        os._exit(1)
