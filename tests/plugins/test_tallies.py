"""Metrics that are counted without a lock say what the library's own say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from plugins.tallies import COUNTER, GAUGE, HISTOGRAM, MULTIPROCESS, cell_of


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


def test_whoever_counts_often_adds_to_a_cell() -> None:
    """Which is the value itself, also after others have changed it."""
    registry = CollectorRegistry()
    held = GAUGE("b", "B", ("l",), registry=registry).labels("x")
    cell = cell_of(held)
    held.set(5)
    cell[0] += 2
    held.dec()
    assert (cell[0], _values(registry)) == (6.0, [("b", {"l": "x"}, 6.0)])


def test_what_is_set_after_the_library_was_loaded_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked then, and its values are where it has had them since, also those of labels that come later."""
    registry = CollectorRegistry()
    held = GAUGE("b", "B", ("l",), registry=registry)
    monkeypatch.setenv(MULTIPROCESS, "/nowhere")
    held.labels("x").inc(2)
    assert _values(registry) == [("b", {"l": "x"}, 2.0)]


SHARED = """
import json
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from plugins.tallies import COUNTER, GAUGE, HISTOGRAM, cell_of
for name, counter, gauge, histogram in ("theirs", Counter, Gauge, Histogram), ("ours", COUNTER, GAUGE, HISTOGRAM):
    assert (counter is Counter) is (name == "theirs")
    registry = CollectorRegistry()
    counted = counter(name + "_a", "A", ("l",), registry=registry)
    held = gauge(name + "_b", "B", ("l",), registry=registry, multiprocess_mode="livesum")
    seen = histogram(name + "_c", "C", ("l",), buckets=(0.5, 1, 2), registry=registry)
    for label in map(str, range(2_000)):  # the library's files grow
        counted.labels(label)
    for turn in range(2):
        for value in (0, 0.4, 0.5, 0.6, 1, 2, 2.1, 1e9):
            counted.labels(str(turn)).inc(value)
            held.labels("x").inc(value)
            held.labels("x").dec()
            seen.labels("x").observe(value)
        seen.labels(str(turn) * 20_000)
        if name == "ours":
            cell_of(held.labels("x"))[0] += 1
        else:
            held.labels("x").inc()
read = CollectorRegistry()
MultiProcessCollector(read)
found = {"theirs": [], "ours": []}
for family in read.collect():
    for sample in family.samples:
        whose, _, name = sample.name.partition("_")
        if whose in found:
            found[whose].append([name, sorted(sample.labels.items()), sample.value])
print(json.dumps([sorted(found["theirs"]), sorted(found["ours"])]))
"""


def test_what_several_processes_count_is_told_as_the_library_tells_it(tmp_path: Path) -> None:
    """By whoever reads the files, at once, and after the files have become larger too."""
    environment = {**os.environ, MULTIPROCESS: str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SHARED], env=environment, capture_output=True, text=True, check=True)
    theirs, ours = json.loads(done.stdout)
    assert ours == theirs
    assert len(theirs) > 2_000
    assert any(path.stat().st_size >= 1 << 18 for path in tmp_path.iterdir())


def _values(registry: CollectorRegistry) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
