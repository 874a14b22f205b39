"""Prometheus' metrics, counted without a lock in a process that counts in one thread alone.

The library takes a lock for each value that it changes, which costs a request more than its whole way through the
chain. Only the event loop's thread counts here; whoever reads meanwhile reads values that were right a moment ago.
In one of several processes on a port the values are where the library has them then, in a file that is mapped into
memory. They are counted there, so that all processes see them at once, and those of one that is killed are not lost.
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


def _cell(value: Any) -> Any:
    """Where a value of the library's is in its file: a memory of one number, which is written as a whole."""
    file = value._file  # noqa: SLF001
    place = file._positions[value._key]  # noqa: SLF001
    return memoryview(file._m)[place : place + 8].cast("d")  # noqa: SLF001  # a file that grows is mapped once more


class _SharedCounter(prometheus_client.Counter):
    def _metric_init(self) -> None:
        super()._metric_init()
        self._cell = _cell(self._value)

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:  # noqa: ARG002
        self._cell[0] += amount


class _SharedGauge(prometheus_client.Gauge):
    def _metric_init(self) -> None:
        super()._metric_init()
        self._cell = _cell(self._value)

    def inc(self, amount: float = 1) -> None:
        self._cell[0] += amount

    def dec(self, amount: float = 1) -> None:
        self._cell[0] -= amount


class _SharedHistogram(prometheus_client.Histogram):
    def _metric_init(self) -> None:
        super()._metric_init()
        self._cells = [*map(_cell, self._buckets)]
        self._cell = _cell(self._sum)

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:  # noqa: ARG002
        self._cell[0] += amount
        self._cells[bisect_left(self._upper_bounds, amount)][0] += 1


def _kind(plain: Any, shared: Any) -> Any:
    return shared if MULTIPROCESS in os.environ else plain


COUNTER: Final[type[Counter]] = _kind(_Counter, _SharedCounter)
GAUGE: Final[type[Gauge]] = _kind(_Gauge, _SharedGauge)
HISTOGRAM: Final[type[Histogram]] = _kind(_Histogram, _SharedHistogram)
