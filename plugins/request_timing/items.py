"""The items of the headers in which TensorRT-LLM's workers, and its frontend, tell the times of a request."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

TIMING: Final = "Server-Timing"
START_END: Final = "X-TRTLLM-Start-End-Time"
STEPS: Final = "X-TRTLLM-Step-Metrics"
CHUNKS: Final = "X-TRTLLM-Ctx-Chunk-Metrics"
HEADERS: Final = (TIMING, START_END, STEPS, CHUNKS)
"""In the order of their worth: the first two are kept when all are too large."""

_WORKER: Final = ("server_", "server-")
_ITEM: Final = re.compile(r"([A-Za-z][\w.-]{0,127});(dur|ts)=([0-9.eE+-]{1,40})", re.ASCII)


@frozen
class Item:
    """A duration in milliseconds, or with `stamp` a time in seconds, under the name of a phase and a part of it."""

    name: str
    value: float
    stamp: bool = False

    def write(self) -> str:
        """As it stands in a header."""
        return f"{self.name};ts={self.value:.9f}" if self.stamp else f"{self.name};dur={self.value:.6f}"


def read_items(told: str, phase: str, clock_ahead: float) -> Iterator[Item]:
    """What a worker told in one header, under the name of its phase and by the clock of this process.

    What is no item, no number or no time is left out.
    """
    for text in told.split(","):
        found = _ITEM.fullmatch(text.strip())
        value = None if found is None else _number(found[3])
        if found is None or value is None:
            continue
        name = phase + found[1][len("server") :] if found[1].startswith(_WORKER) else found[1]
        if found[2] == "ts":
            yield Item(name, value - clock_ahead, stamp=True)
        elif value >= 0:
            yield Item(name, value)


def write_items(items: Iterable[Item]) -> str:
    """The value of a header."""
    return ", ".join(item.write() for item in items)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
