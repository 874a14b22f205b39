"""Request ids of TensorRT-LLM handoffs, unique among all frontends of a deployment."""

import os
import time
from typing import Final

NODES: Final = 1 << 8
_PROCESSES: Final = 1 << 6
_SERIALS: Final = 1 << 10
_STAMPS: Final = 1 << 39

_LOWEST: Final = 1 << 40
"""Smaller ids are the workers' own."""

_PROCESS_VARIABLE: Final = "TRTLLM_DISAGG_WORKER_PROCESS_ID"


class _Ids:
    """The last stamp and serial number. One for the whole process: two assemblies overlap in a reload."""

    def __init__(self) -> None:
        self._stamp = 0
        self._serial = 0

    def mint(self, node: int) -> int:
        """A new id: 39 bits of milliseconds, 8 of the node, 6 of the process, 10 of a serial number."""
        now = time.time_ns() // 1_000_000
        if now > self._stamp:
            self._stamp, self._serial = now, 0
        else:  # more than one in a millisecond, or the clock was set back
            self._serial += 1
            if self._serial == _SERIALS:
                self._stamp, self._serial = self._stamp + 1, 0
        number = self._stamp % _STAMPS
        for part, size in ((node, NODES), (_process(), _PROCESSES), (self._serial, _SERIALS)):
            number = number * size + part % size
        return number % ((1 << 63) - 1 - _LOWEST) + _LOWEST


def _process() -> int:
    """The process's number among those of its node; asked each time, since a fork has another."""
    given = os.environ.get(_PROCESS_VARIABLE, "")
    return int(given) if given.isdecimal() else os.getpid()


mint = _Ids().mint
