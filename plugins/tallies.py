"""Prometheus' metrics, counted without a lock in a process that counts in one thread alone.

The library takes a lock for each value that it changes, which costs a request more than its whole way through the
chain. Only the event loop's thread counts here; whoever reads meanwhile reads values that were right a moment ago.
In one of several processes on a port the library's own classes are used: they write to a file that all of them share.
"""

import os
from bisect import bisect_left
from typing import Any, Final

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

MULTIPROCESS: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder through which several processes on one port share their metrics."""


class _Counter(prometheus_client.Counter):
    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:  # noqa: ARG002
        self._value._value += amount  # noqa: SLF001


class _Gauge(prometheus_client.Gauge):
    def inc(self, amount: float = 1) -> None:
        self._value._value += amount  # noqa: SLF001

    def dec(self, amount: float = 1) -> None:
        self._value._value -= amount  # noqa: SLF001


class _Histogram(prometheus_client.Histogram):
    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:  # noqa: ARG002
        self._sum._value += amount  # noqa: SLF001
        self._buckets[bisect_left(self._upper_bounds, amount)]._value += 1  # noqa: SLF001


def _kind(plain: Any, shared: Any) -> Any:
    return shared if MULTIPROCESS in os.environ else plain


COUNTER: Final[type[Counter]] = _kind(_Counter, Counter)
GAUGE: Final[type[Gauge]] = _kind(_Gauge, Gauge)
HISTOGRAM: Final[type[Histogram]] = _kind(_Histogram, Histogram)
