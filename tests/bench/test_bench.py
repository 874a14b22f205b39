"""The benchmarks run: each part with tiny counts, every answer checked, no word about time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.cases import CASES
from bench.gateways import FLOOR_A, FLOOR_B, FLOOR_D, KERNEL
from bench.measure import OPTIONAL, measure
from bench.processes import Cores, resident_bytes
from bench.reloads import ALONE
from plugins.order import STANDARD_ORDER

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
SECONDS = 500
GATEWAYS = [FLOOR_A, FLOOR_B, FLOOR_D, KERNEL]


def run_bench(*arguments: str) -> str:
    """What `python -m bench ARGUMENTS` prints."""
    command = [sys.executable, "-m", "bench", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_cases(*names: str) -> Any:
    """What a quick run of these cases with two of the gateways prints as JSON."""
    gateways = (f"--gateway={name}" for name in (FLOOR_D, KERNEL))
    return json.loads(run_bench("--quick", "--json", *gateways, *(f"--case={name}" for name in names)))


def test_gateways_are_measured_with_one_leg(tmp_path: Path) -> None:
    """Whole answers, streams and hang-ups: a line and a row of each, and all rounds in JSON."""
    names = ["one_leg", "one_leg_100k", "paced", "unpaced", "hang_ups"]
    head, table = run_bench("--quick", *(f"--case={name}" for name in names), f"--output={tmp_path}").split("\n\n")
    data = json.loads(tmp_path.joinpath("bench.json").read_text())
    shown = tmp_path.joinpath("bench.md").read_text()

    assert "mean nothing" in head
    assert f"| case | unit | {' | '.join(GATEWAYS)} | kernel / {FLOOR_A} |" in shown
    assert data["environment"]["gateway_cores"]
    assert list(data["cases"]) == names
    lines = iter(table.splitlines()[1:])
    for case in data["cases"].values():
        assert f"| {case['title']} | {case['unit']} |" in shown
        assert next(lines) == f"{case['title']}, {case['unit']}"
        assert list(case["gateways"]) == GATEWAYS == [next(lines)[2:10].strip() for _ in GATEWAYS]
        for figures in case["gateways"].values():
            assert len(figures["samples"]) == 1
            assert figures["lowest"] <= figures["median"] <= figures["highest"]
        assert case["gateways"][KERNEL]["ratio"] == 1.0
    assert data["cases"]["hang_ups"]["gateways"][KERNEL]["samples"][0]["left"] == 8


def test_gateways_are_measured_before_other_workers() -> None:
    """Pairs of each engine, a policy that looks at prompts, and a thousand workers."""
    names = ["prefix", "thousand", "trtllm", "vllm", "sglang"]
    cases = run_cases(*names)["cases"]

    assert list(cases) == names
    assert all(list(case["gateways"]) == [FLOOR_D, KERNEL] for case in cases.values())


def test_reloads_are_measured() -> None:
    """The kernel takes them while it is loaded, in turn with being left alone."""
    gateways = run_cases("reload")["cases"]["reload"]["gateways"]

    assert {name: figures["samples"][0]["reloads"] > 0 for name, figures in gateways.items()} == {
        KERNEL: True,
        ALONE: False,
    }


def test_a_plugin_is_measured_by_a_kernel_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be switched off is; the whole kernel has turns beside it."""
    monkeypatch.setattr("bench.measure.OPTIONAL", ("access_log",))
    case = next(case for case in CASES if case.kind == "plugins").quick()
    told: list[str] = []

    (result,) = measure([case], 1, told.append, Cores.of_this_machine())

    assert list(result.samples) == [KERNEL, "without access_log"]
    assert all(sample.processor_seconds > 0 for samples in result.samples.values() for sample in samples)
    assert told[-1] == "plugins, round 1 of 1"


def test_memory_is_told_at_rest_and_under_streams() -> None:
    """One case gives two results."""
    cases = run_cases("memory")["cases"]

    assert list(cases) == ["memory_rest", "memory_streams"]
    assert {case["unit"] for case in cases.values()} == {"MiB"}
    for name in (FLOOR_D, KERNEL):
        rest, streams = (case["gateways"][name]["median"] for case in cases.values())
        assert 0 < rest <= streams


def test_names_of_cases_are_told_once() -> None:
    """No two have the same name or title."""
    assert len({case.name for case in CASES}) == len({case.title for case in CASES}) == len(CASES)


def test_plugins_that_can_be_switched_off_are_known() -> None:
    """All but those without which nothing is answered."""
    assert {line.name for line in STANDARD_ORDER} - {*OPTIONAL} == {
        "dispatch",
        "encode_reply",
        "error_envelope",
        "parse_request",
    }


def test_the_chain_is_measured_plugin_by_plugin() -> None:
    """Every standard plugin but dispatch, which needs sockets, has a line in the order of the chain."""
    sections = json.loads(run_bench("chain", "--quick", "--json"))

    plugins = next(costs for title, costs in sections.items() if "each plugin" in title)
    assert list(plugins) == [line.name for line in STANDARD_ORDER if line.name != "dispatch"]


def test_the_chain_has_a_table_for_each_section() -> None:
    """Sections are set apart by a blank line, and each step has its figure."""
    tables = run_bench("chain", "--quick").split("\n\n")

    assert len(tables) == 3
    assert all(line.endswith(" us") for table in tables for line in table.splitlines()[1:])


def test_one_process_and_two_are_measured() -> None:
    """Each with every figure, and of two neither has all of the work."""
    data = json.loads(run_bench("cores", "--quick", "--case", "prefix", "--json"))

    (case,) = data.values()
    assert list(case["processes"]) == ["1", "2"]
    assert all(len(figures) == 4 for figures in case["processes"].values())
    assert case["processes"]["1"]["busiest"] == 1.0
    assert 0.5 <= case["processes"]["2"]["busiest"] <= 1.0


def test_memory_is_that_of_the_process() -> None:
    """What is read of a process that runs Python is more than nothing, and grows with what it holds."""
    before = resident_bytes(os.getpid())
    held = b"x" * (64 << 20)

    assert resident_bytes(os.getpid()) - before > len(held) // 2 > before // 1000
