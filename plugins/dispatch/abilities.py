"""What an engine may do besides that only a few have any use for: tell times, link workers, free what is held."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from plugins.slots import LegTimes


@runtime_checkable
class Reports(Protocol):
    """An engine whose workers tell how long a request took them."""

    def report(self, times: LegTimes, headers: Mapping[str, str], received: float, /) -> None:
        """Keep what the head of an answer tells, which came in at `received` (a reading of `time.monotonic()`)."""
        ...
