"""A kernel that was started from a terminal, when the terminal is closed."""

import fcntl
import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from plugins.host import terminal as module
from plugins.host.terminal import Terminal
from tests.host.process import Kernel, alive
from tests.host.test_reload import invoke
from tests.host.wire import until


def take_terminal() -> None:
    """Make standard input the terminal of this process's session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_closed_terminal(config: Path, workers: str) -> None:
    """A reload is a reload as long as the terminal is there; when it is closed everything ends in order."""
    command = [sys.executable, "-m", "plugins.host", "run", str(config), "--workers", workers]
    ours, theirs = os.openpty()
    with (
        Path(f"{config}.err").open("w") as errors,
        subprocess.Popen(
            command,
            stdin=theirs,
            stdout=errors,
            stderr=errors,
            text=True,
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509 - one system call, which takes no lock
        ) as process,
    ):
        try:
            os.close(theirs)
            kernel = Kernel(process, config)
            processes = [state.pid for state in kernel.serving()]
            assert invoke("reload", str(config)).exit_code == 0
            os.close(ours)  # has the system send SIGHUP
            assert process.wait(20) == 0
            until(lambda: not alive(processes))
        finally:
            process.kill()


def test_no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A terminal that there never was is not lost."""
    place = tmp_path / "tty"
    monkeypatch.setattr(module, "CONTROLLING", str(place))
    never = Terminal()
    place.write_text("")
    once = Terminal()
    assert not once.is_lost()
    place.unlink()
    assert once.is_lost()
    assert not never.is_lost()
