"""The metrics: the names, types and buckets that dashboards rely on, and labels that cannot grow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import REGISTRY as DEFAULT
from prometheus_client import Metric
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.parser import text_string_to_metric_families

from plugins.metrics import IN_FLIGHT, PLUGIN_DURATION, REQUESTS, PrometheusTelemetry, child, exposition
from plugins.tallies import MULTIPROCESS
from tests.plugins.support import counting

ROOT = Path(__file__).parents[2]
BUCKETS = (
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560",
    "0.1 0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920",
)
SHORT_BUCKETS, LONG_BUCKETS = ([*map(float, text.split()), float("inf")] for text in BUCKETS)
COUNTERS = (
    *("total_requests", "stream_requests", "nonstream_requests", "validation_exceptions"),
    *("http_exceptions", "internal_errors", "total_responses"),
    *(f"{phase}_{what}_requests" for phase in ("ctx", "gen") for what in ("total", "error", "retry", "completed")),
)
HISTOGRAMS = {
    "queue_latency_seconds": SHORT_BUCKETS,
    **{f"{phase}_first_token_latency_seconds": SHORT_BUCKETS for phase in ("ctx", "gen")},
    **{f"{phase}_per_token_latency_seconds": SHORT_BUCKETS for phase in ("ctx", "gen")},
    **{f"{phase}_complete_latency_seconds": LONG_BUCKETS for phase in ("ctx", "gen")},
}
OWN = {
    "kernel_requests": ("counter", {"endpoint", "model", "status"}),
    "kernel_errors": ("counter", {"endpoint", "model", "error"}),
    "kernel_requests_in_flight": ("gauge", {"endpoint"}),
    "kernel_queue_wait_seconds": ("histogram", {"endpoint", "model"}),
    "kernel_time_to_first_token_seconds": ("histogram", {"endpoint", "model"}),
    "kernel_inter_token_seconds": ("histogram", {"endpoint", "model"}),
    "kernel_overhead_seconds": ("histogram", {"endpoint", "model"}),
    "kernel_plugin_duration_seconds": ("histogram", {"plugin"}),
    "kernel_reloads": ("counter", {"result"}),
    "kernel_workers_up": ("gauge", {"model", "role"}),
    "kernel_workers": ("gauge", {"model", "role"}),
    "kernel_reservations": ("gauge", {"model", "role"}),
    "kernel_aborts": ("counter", {"model", "role", "result"}),
    "kernel_handoffs_missing": ("counter", {"model"}),
    "kernel_discoveries": ("counter", {"model", "role", "result"}),
    "kernel_breakers_open": ("gauge", {"model", "role"}),
    "kernel_ejections": ("counter", {"model", "role", "reason"}),
    "kernel_retries": ("counter", {"model", "role", "reason"}),
    "kernel_retry_budget_exhausted": ("counter", {"model", "role"}),
    "kernel_performance_records_lost": ("counter", {"reason"}),
}
FEED = """
import os, sys
from plugins import metrics
metrics.TOTAL_REQUESTS.inc(int(sys.argv[1]))
metrics.QUEUE_LATENCY.observe(0.003)
metrics.child(metrics.REQUESTS, "chat_completions", "m", "200").inc(int(sys.argv[1]))
metrics.child(metrics.IN_FLIGHT, "chat_completions").inc(int(sys.argv[1]))
metrics.WORKERS.labels("m", "generation").set(int(sys.argv[1]))
metrics.WORKERS_UP.labels("m", "generation").set(int(sys.argv[1]))
sys.stdout.write(metrics.exposition()[0].decode())
"""


def families(text: bytes) -> dict[str, Metric]:
    """The metrics of an exposition, as a scraper reads them, by name."""
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def buckets(family: Metric) -> list[float]:
    """The upper bounds of a histogram."""
    return [float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")]


def test_seed_metrics_have_their_names_and_types() -> None:
    """Every metric of TensorRT-LLM's frontend is there, under its name, without a label, from the first scrape on."""
    text, content_type = exposition()
    found = families(text)

    assert content_type.startswith("text/plain")
    for name in COUNTERS:
        assert found[name].type == "counter", name
        assert [sample.labels for sample in found[name].samples if sample.name == f"{name}_total"] == [{}]
    for name in HISTOGRAMS:
        assert found[name].type == "histogram", name
        assert all(sample.labels.keys() <= {"le"} for sample in found[name].samples)


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_seed_histograms_have_their_buckets(name: str) -> None:
    """The buckets are those of TensorRT-LLM's frontend, so that quantiles stay comparable."""
    assert buckets(families(exposition()[0])[name]) == HISTOGRAMS[name]


def test_other_metrics_are_the_kernels_own() -> None:
    """Whatever is not of TensorRT-LLM's frontend has the prefix `kernel_`, and no label but the known ones."""
    found = {
        name: family
        for name, family in families(exposition()[0]).items()
        if not name.startswith(("process_", "python_")) and not name.endswith("_created")
    }

    assert found.keys() - {*COUNTERS, *HISTOGRAMS} == OWN.keys()
    for name, (kind, labels) in OWN.items():
        assert found[name].type == kind
        for sample in found[name].samples:
            assert sample.labels.keys() - {"le"} == labels


def test_child_is_the_librarys_own() -> None:
    """The faster way to a child gives the same object, once for each set of labels."""
    found = child(REQUESTS, "test", "m", "200")

    assert found is REQUESTS.labels("test", "m", "200")
    assert child(REQUESTS, "test", "m", "200") is found
    assert child(REQUESTS, "test", "m", "201") is not found
    assert child(IN_FLIGHT, "test") is IN_FLIGHT.labels("test")


def test_telemetry_counts_the_kernels_doings() -> None:
    """Reloads count by their result; a sampled exchange is observed once for each of its plugins."""
    telemetry = PrometheusTelemetry()

    with counting() as changes:
        telemetry.reloaded(accepted=True)
        telemetry.reloaded(accepted=False)
        telemetry.timed({"access_log": 0.001, "dispatch": -0.001})

    (family,) = PLUGIN_DURATION.labels("dispatch").collect()
    assert [sample.value for sample in family.samples if sample.name.endswith("_sum")] == [0]
    assert changes == {
        "kernel_reloads_total accepted": 1,
        "kernel_reloads_total refused": 1,
        "kernel_plugin_duration_seconds_count access_log": 1,
        "kernel_plugin_duration_seconds_count dispatch": 1,
    }


def test_every_metric_is_in_one_registry() -> None:
    """No metric of ours is in the library's default registry, where an embedding application keeps its own."""
    names = {family.name for family in DEFAULT.collect()}

    assert not names & {*COUNTERS, *HISTOGRAMS, *OWN}


def feed(folder: Path, amount: int) -> dict[str, Metric]:
    """Count in a process of its own, and what it exposes afterwards."""
    done = subprocess.run(
        [sys.executable, "-c", FEED, str(amount)],
        cwd=ROOT,
        env={**os.environ, MULTIPROCESS: str(folder)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return families(done.stdout)


def test_processes_on_one_port_are_summed(tmp_path: Path) -> None:
    """With a folder to share, whichever process is scraped tells the counts of all, and gauges as they mean it."""
    feed(tmp_path, 5)
    found = feed(tmp_path, 2)

    def value(name: str, sample: str) -> list[float]:
        return [item.value for item in found[name].samples if item.name == sample]

    assert value("total_requests", "total_requests_total") == [7]
    assert value("kernel_requests", "kernel_requests_total") == [7]
    assert value("queue_latency_seconds", "queue_latency_seconds_count") == [2]
    assert buckets(found["queue_latency_seconds"]) == SHORT_BUCKETS
    assert value("kernel_requests_in_flight", "kernel_requests_in_flight") == [7]
    assert value("kernel_workers", "kernel_workers") == [5]
    assert value("kernel_workers_up", "kernel_workers_up") == [2]
    assert not any("pid" in sample.labels for family in found.values() for sample in family.samples)


def test_process_that_ended_leaves_its_counts_and_takes_its_gauges(tmp_path: Path) -> None:
    """A process that is marked dead no longer says how many workers are up, or what is in flight."""
    feed(tmp_path, 1)
    (dead,) = {int(file.stem.split("_")[-1]) for file in tmp_path.glob("gauge_live*.db")}
    mark_process_dead(dead, str(tmp_path))  # type: ignore[no-untyped-call]
    found = feed(tmp_path, 4)

    assert [item.value for item in found["kernel_workers_up"].samples] == [4]
    assert [item.value for item in found["kernel_requests_in_flight"].samples] == [4]
    assert [item.value for item in found["total_requests"].samples if item.name.endswith("_total")] == [5]
