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
        self._pid = 0
        self._process = 0

    def mint(self, node: int) -> int:
        """A new id: 39 bits of milliseconds, 8 of the node, 6 of the process, 10 of a serial number."""
        now = time.time_ns() // 1_000_000
        if now > self._stamp:
            self._stamp, self._serial = now, 0
        else:  # more than one in a millisecond, or the clock was set back
            self._serial += 1
            if self._serial == _SERIALS:
                self._stamp, self._serial = self._stamp + 1, 0
        pid = os.getpid()
        if pid != self._pid:  # a fork has another number
            self._pid, self._process = pid, _process() % _PROCESSES
        number = (self._stamp % _STAMPS * NODES + node % NODES) * _PROCESSES + self._process
        number = number * _SERIALS + self._serial
        return number % ((1 << 63) - 1 - _LOWEST) + _LOWEST


def _process() -> int:
    """The process's number among those of its node."""
    given = os.environ.get(_PROCESS_VARIABLE, "")
    return int(given) if given.isdecimal() else os.getpid()


mint = _Ids().mint
