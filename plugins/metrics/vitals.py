"""What grows in a process in which something is never given back, as metrics that are read with each scrape."""

import asyncio
import sys
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class Vitals(Collector):
    """The tasks of the event loop in whose thread the metrics are read, and Python's memory."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Count both."""
        try:
            tasks = len(asyncio.all_tasks())
        except RuntimeError:  # no loop runs here
            tasks = 0
        yield GaugeMetricFamily("python_tasks", "Tasks of the event loop", tasks)
        yield GaugeMetricFamily("python_memory_blocks", "Memory blocks in use by Python", sys.getallocatedblocks())
