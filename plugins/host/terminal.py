"""Tells a SIGHUP that asks for a reload from one that says that the terminal was closed."""

import os
from typing import Final

from attrs import define, field

CONTROLLING: Final = "/dev/tty"


def has_terminal() -> bool:
    """Whether this process's session has a terminal that is still there."""
    try:
        descriptor = os.open(CONTROLLING, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    os.close(descriptor)
    return True


@define
class Terminal:
    """The terminal that this process was started from, if any."""

    had: bool = field(factory=has_terminal)

    def is_lost(self) -> bool:
        """Whether there was one and it is gone: nobody is left to stop this process with Ctrl-C."""
        return self.had and not has_terminal()
