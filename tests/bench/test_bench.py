"""The benchmarks run: each part with tiny counts, every answer checked, no word about time."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.cases import CASES
from bench.measure import FLOOR_A, FLOOR_B, KERNEL
from bench.processes import processor_seconds
from plugins.order import STANDARD_ORDER

ROOT = Path(__file__).parents[2]


def run_bench(*arguments: str) -> str:
    """What `python -m bench ARGUMENTS` prints."""
    command = [sys.executable, "-m", "bench", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_case_has_a_table_with_each_gateway() -> None:
    """A quick run goes through all cases, and tells that its figures mean nothing."""
    shown = run_bench("--quick")

    head, *tables = shown.split("\n\n")
    assert "mean nothing" in head
    assert len(tables) == len(CASES)
    for case, table in zip(CASES, tables, strict=True):
        title, _, *lines = table.splitlines()
        assert title.startswith(case.title)
        assert [line[2:10].strip() for line in lines if line] == [FLOOR_A, FLOOR_B, KERNEL]


def test_one_case_can_be_chosen_and_read_by_a_program() -> None:
    """With `--case` nothing else is measured, and JSON holds each gateway's rounds and ratios."""
    data = json.loads(run_bench("--quick", "--case", "two_legs", "--json"))

    assert list(data["cases"]) == ["two_legs"]
    figures = data["cases"]["two_legs"]
    assert list(figures) == [FLOOR_A, FLOOR_B, KERNEL]
    assert all(len(figure["rounds"]) == 1 for figure in figures.values())
    assert figures[FLOOR_A]["/A"] == figures[FLOOR_B]["/B"] == 1.0
    assert data["environment"]["gateway_cores"]


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


def test_processor_time_is_that_of_the_whole_process() -> None:
    """What is read from outside about a process is what it would say of itself."""
    before = time.process_time()
    seen = processor_seconds(os.getpid())
    after = time.process_time()

    assert before <= seen <= after
