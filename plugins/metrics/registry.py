"""The one registry of the distribution, how its metrics are made, and the text that Prometheus scrapes."""

import os
from typing import Any, Final, Literal, TypeAlias, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from plugins.metrics.vitals import Vitals
from plugins.tallies import COUNTER, GAUGE, HISTOGRAM, MULTIPROCESS

M = TypeVar("M", Counter, Gauge, Histogram)
Mode: TypeAlias = Literal["livesum", "livemin", "livemax"]

REGISTRY: Final = CollectorRegistry(auto_describe=False)
if MULTIPROCESS not in os.environ:
    REGISTRY.register(Vitals())
    ProcessCollector(registry=REGISTRY)
    PlatformCollector(registry=REGISTRY)

SHORT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
LONG: Final = (
    0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
)  # fmt: skip
OVERHEAD: Final = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1,
)  # fmt: skip


def counter(name: str, text: str, *labels: str) -> Counter:
    """A counter of this distribution."""
    return COUNTER(name, text, labels, registry=REGISTRY)


def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    """A histogram of this distribution."""
    return HISTOGRAM(name, text, labels, buckets=buckets, registry=REGISTRY)


def gauge(name: str, text: str, mode: Mode, *labels: str) -> Gauge:
    """A gauge of this distribution; `mode` says what several processes on one port make of it together."""
    return GAUGE(name, text, labels, registry=REGISTRY, multiprocess_mode=mode)


class _Children(dict[tuple[Any, tuple[str, ...]], Any]):
    def __missing__(self, key: tuple[Any, tuple[str, ...]]) -> Any:
        metric, labels = key
        found = self[key] = metric.labels(*labels)
        return found


_children: Final = _Children()


def child(metric: M, *labels: str) -> M:
    """The child of `metric` with these labels, found faster than by the library, which locks for it."""
    found: M = _children[metric, labels]
    return found


def exposition() -> tuple[bytes, str]:
    """The metrics of every process on this port as Prometheus text, and its content type."""
    if MULTIPROCESS not in os.environ:
        return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
    merged = CollectorRegistry()
    MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
    return generate_latest(merged), CONTENT_TYPE_LATEST
