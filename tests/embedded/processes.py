"""Owns how the tests of the embedded workers watch processes end."""

import os
import select
import signal
import threading
from pathlib import Path

LIMIT = 20.0  # seconds after which a process that ought to end has failed the test


def children() -> set[int]:
    """Return the ids of this thread's child processes, ended and unreaped ones included."""
    text = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text(encoding="ascii")
    return {int(word) for word in text.split()}


class Watched:
    """A process under watch, by a handle that a reused id cannot mislead."""

    def __init__(self, pid: int) -> None:
        self._handle = os.pidfd_open(pid)

    def ends(self) -> bool:
        """Wait until the process has ended; one that has not within the limit is killed, and that is False."""
        readable, _, _ = select.select([self._handle], [], [], LIMIT)
        if not readable:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)
        return bool(readable)
