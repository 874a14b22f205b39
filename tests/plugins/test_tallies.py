"""Metrics that are counted without a lock say what the library's own say."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from plugins.tallies import COUNTER, GAUGE, HISTOGRAM


def test_what_is_counted_without_a_lock_is_told_as_the_library_tells_it() -> None:
    """Each bound of a histogram is in the bucket that it ends, and what is over the last one is in the last bucket."""
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    for registry, counter, gauge, histogram in (
        (theirs, Counter, Gauge, Histogram),
        (ours, COUNTER, GAUGE, HISTOGRAM),
    ):
        counted, held = counter("a", "A", registry=registry), gauge("b", "B", ("l",), registry=registry)
        seen = histogram("c", "C", ("l",), buckets=(0.5, 1, 2), registry=registry)
        for value in (0, 0.4, 0.5, 0.6, 1, 2, 2.1, 1e9):
            counted.inc(value)
            held.labels("x").inc(value)
            held.labels("x").dec()
            seen.labels("x").observe(value)

    assert _values(ours) == _values(theirs)
    assert COUNTER is not Counter


def _values(registry: CollectorRegistry) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
