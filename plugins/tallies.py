"""Prometheus' metrics, counted without a lock in a process that counts in one thread alone.

The library takes a lock for each value that it changes, which costs a request more than its whole way through the
chain. Only the event loop's thread counts here; whoever reads meanwhile reads values that were right a moment ago.
In one of several processes on a port the values are where the library has them then, in a file that is mapped into
memory. They are counted there, so that all processes see them at once, and those of one that is killed are not lost.

Each value is in a cell, to which whoever counts often can add without a call.
"""

from bisect import bisect_left
from typing import Any, Final, Protocol

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.values import MutexValue

MULTIPROCESS: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder through which several processes on one port share their metrics."""


class Cell(Protocol):
    """One number, at index 0."""

    def __getitem__(self, index: int, /) -> float: ...

    def __setitem__(self, index: int, number: float, /) -> None: ...


class _Value(MutexValue):
    """A value of the library's whose number is in a cell."""

    def __init__(self, *parameters: Any) -> None:
        self.cell = [0.0]
        super().__init__(*parameters)  # type: ignore[no-untyped-call]

    @property
    def _value(self) -> float:
        return self.cell[0]

    @_value.setter
    def _value(self, number: float) -> None:
        self.cell[0] = number


def _move(value: Any) -> tuple[Any, Cell]:
    """A value that the library has made, or one in its place, and its cell."""
    if isinstance(value, MutexValue):
        own = _Value(*[None] * 6)
        return own, own.cell
    file = value._file  # noqa: SLF001
    place = file._positions[value._key]  # noqa: SLF001
    # a memory of one number, which is written as a whole; a file that grows is mapped once more
    return value, memoryview(file._m)[place : place + 8].cast("d")  # noqa: SLF001


class _Counter(prometheus_client.Counter):
    def _metric_init(self) -> None:
        super()._metric_init()
        self._value, self.cell = _move(self._value)

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:  # noqa: ARG002
        self.cell[0] += amount


class _Gauge(prometheus_client.Gauge):
    def _metric_init(self) -> None:
        super()._metric_init()
        self._value, self.cell = _move(self._value)

    def inc(self, amount: float = 1) -> None:
        self.cell[0] += amount

    def dec(self, amount: float = 1) -> None:
        self.cell[0] -= amount


class _Histogram(prometheus_client.Histogram):
    def _metric_init(self) -> None:
        super()._metric_init()
        self._sum, self.cell = _move(self._sum)
        moved = [*map(_move, self._buckets)]
        self._buckets = [value for value, _ in moved]
        self._cells = [cell for _, cell in moved]

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:  # noqa: ARG002
        self.cell[0] += amount
        self._cells[bisect_left(self._upper_bounds, amount)][0] += 1


COUNTER: Final[type[Counter]] = _Counter
GAUGE: Final[type[Gauge]] = _Gauge
HISTOGRAM: Final[type[Histogram]] = _Histogram


def cell_of(metric: Counter | Gauge) -> Cell:
    """The cell of a counter or gauge of these kinds, without labels or with all of them."""
    cell: Cell = metric.cell  # type: ignore[union-attr]
    return cell
