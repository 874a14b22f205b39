"""The page with the figures says what the committed results say, and is written anew of others."""

import json
import re
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from bench.calls import KINDS
from bench.chart import FLOOR, OWN, PEER, draw, panels
from bench.page import CHART, PAGE, PARTS, RESULTS, filled, write
from bench.processes import BenchError
from bench.results import collect
from bench.stages import CHAIN, LOOP, STAGES


@pytest.fixture
def results() -> dict[str, Any]:
    """The committed results."""
    committed: dict[str, Any] = json.loads(RESULTS.read_text())
    return committed


def case(title: str, unit: str = "us/request", **medians: float) -> dict[str, Any]:
    """A case of a run, with a gateway for each name."""
    gateways = {
        name.replace("_", " "): {
            "median": median,
            "lowest": median - 1,
            "highest": median + 1,
            "ratio": medians["kernel"] / median,
            "less": medians["kernel"] - median,
            "whole_p99_milliseconds": median * 2,
            "samples": [{"value": median}],
        }
        for name, median in medians.items()
    }
    return {"title": title, "unit": unit, "latency": "whole", "gateways": gateways}


def made() -> dict[str, Any]:
    """Results of a run with a router, a floor, and a chain without one plugin."""
    cases = {
        "vllm": case("two legs", router=100.0, floor_D=62.5, kernel=75.0),
        "vllm_256": case("two legs, 256 at once", router=110.0, kernel=80.0),
        "paced": case("streams, 256 at once", "us/token", router=20.0, kernel=19.0) | {"latency": "first"},
        "plugins": case("without one", kernel=75.0, without_deadline=74.25),
        "memory_rest": case("at rest", "MiB", router=120.0, kernel=57.0),
    }
    goal = {"case": "vllm", "measured": "us/request", "reached": "80 or less", "met": True, "reason": "met"}
    run = {"environment": {"python": "3", "other_cores": [1, 2]}, "rounds": 3, "quick": False, "cases": cases}
    stages = {"vllm": {"title": "two legs", "unit": "us/request", "stages": dict.fromkeys(STAGES, 1.0)}}
    one = {"microseconds": 70.25, "per_second": 12_000.0, "p99_milliseconds": 9.0, "busiest": 1.0}
    two = {"microseconds": 75.0, "per_second": 15_000.0, "p99_milliseconds": 8.0, "busiest": 0.55}
    cores = {"one_leg": {"title": "one leg", "unit": "us/request", "processes": {"1": one, "2": two}}}
    calls = {key: {LOOP: 1, CHAIN: 2} for key in KINDS}
    parts = {"stages": stages, "cores": cores, "calls": calls}
    return {"note": "", "gateways": run | {"goals": [goal]}, "floors": deepcopy(run), **parts}


def test_the_page_agrees_with_the_results(results: dict[str, Any]) -> None:
    """Nobody has edited a figure, and no result was committed without its page."""
    assert filled(PAGE.read_text(), results) == PAGE.read_text()


def test_the_page_has_every_part(results: dict[str, Any]) -> None:
    """Each once, none is empty, and the chart is there."""
    found = re.findall(r"<!-- begin: ([a-z]+) -->\n\n(.+?)\n\n<!-- end: \1 -->", PAGE.read_text(), re.DOTALL)

    assert sorted(name for name, _ in found) == sorted(PARTS)
    assert f"({CHART.name})" in PAGE.read_text()
    assert CHART.read_bytes().startswith(b"\x89PNG")
    assert list(panels(results["gateways"]))


def test_a_table_has_a_line_for_each_load_and_the_kernel_first() -> None:
    """Gateways that took no part have a dash; memory and chains without a plugin are other tables."""
    assert PARTS["processor"](made()).splitlines() == [
        "| load | kernel | router | floor D |",
        "| --- | ---: | ---: | ---: |",
        "| two legs, us/request | **75.0** (74.0-76.0) | 100, 0.75 | 62.5, 1.20 |",
        "| two legs, 256 at once, us/request | **80.0** (79.0-81.0) | 110, 0.73 | - |",
        "| streams, 256 at once, us/token | **19.0** (18.0-20.0) | 20.0, 0.95 | - |",
    ]
    assert PARTS["memory"](made()).splitlines()[2:] == ["| at rest, MiB | 57 | 120 |"]
    assert PARTS["tails"](made()).splitlines()[2:] == ["| two legs, 256 at once, ms | 160 | 220 |"]
    assert PARTS["plugins"](made()).splitlines()[2:] == ["| deadline | 0.8 |"]
    assert PARTS["cores"](made()).splitlines()[3] == "| one leg, us/request | 2 | 75.0 | 15,000 | 8.0 | 55% |"
    assert PARTS["goals"](made()).splitlines()[2:] == ["| two legs | us/request | 80 or less | met |"]


def test_stages_and_calls_have_sums() -> None:
    """What a column adds up to, and each stage's share of it."""
    lines = PARTS["stages"](made()).splitlines()
    assert lines[2] == f"| {LOOP} | 1.0 ({1 / len(STAGES):.0%}) |"
    assert lines[-1] == f"| **all** | **{len(STAGES)}.0** |"

    head, _, *rows = PARTS["calls"](made()).splitlines()
    assert head == "| stage | one leg | trtllm | vllm | sglang | token |"
    assert rows == [f"| {LOOP} |{' 1 |' * 5}", f"| {CHAIN} |{' 2 |' * 5}", f"| **all** |{' **3** |' * 5}"]


def test_what_the_figures_depend_on_is_told() -> None:
    """With a word of warning, where they mean nothing."""
    quick = made()
    quick["gateways"] |= {"quick": True, "rounds": 1}

    assert PARTS["environment"](made()) == "python 3, other cores 1 and 2; 3 rounds."
    assert PARTS["environment"](quick).endswith("; one round. Quick: these figures mean nothing.")
    assert PARTS["environment"](made() | {"note": "Busy."}) == "**Busy.**\n\npython 3, other cores 1 and 2; 3 rounds."


def test_results_are_collected_without_their_rounds(tmp_path: Path) -> None:
    """All of them are needed, so that a page is never half of one day and half of another."""
    run = made()
    files = {"peers": "gateways", "bench": "floors", "stages": "stages", "cores": "cores"}
    for file, part in files.items():
        with pytest.raises(FileNotFoundError):
            collect(tmp_path, run["calls"])
        tmp_path.joinpath(f"{file}.json").write_text(json.dumps(run[part]))
    found = collect(tmp_path, run["calls"], "Busy.")

    assert found["note"] == "Busy."
    assert found["gateways"]["goals"] == run["gateways"]["goals"]
    assert "samples" not in json.dumps(found)
    assert {name: PARTS[name](found) for name in PARTS} == {
        name: PARTS[name](run | {"note": "Busy."}) for name in PARTS
    }


def test_a_page_is_written_anew(tmp_path: Path) -> None:
    """The same results give the same page, whatever stood between the marks."""
    page, file = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text("Before\n\n<!-- begin: memory -->\nold\n<!-- end: memory -->\n\nAfter\n")

    write(made(), page, file)
    first = page.read_text()
    write(json.loads(file.read_text()), page, file)

    assert first == page.read_text()
    assert first.startswith("Before\n\n<!-- begin: memory -->\n\n| load | kernel | router |\n")
    assert first.endswith("| 57 | 120 |\n\n<!-- end: memory -->\n\nAfter\n")


def test_bars_are_in_order_and_the_kernel_stands_out() -> None:
    """A panel for each load with its bars by length, routers in another colour than floors."""
    first, second = panels(
        {"cases": {name: made()["gateways"]["cases"][name] for name in ("vllm", "vllm_256", "paced")}}
    )

    assert first.bars == (("floor D", 62.5, FLOOR), ("kernel", 75.0, OWN), ("router", 100.0, PEER))
    assert (second.title, second.unit) == ("streams, 256 at once", "µs per token")


def test_a_chart_needs_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever draws without it is told what to install, and nothing is written."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(BenchError, match=r"\[bench\]"):
        draw(made()["gateways"], tmp_path / "chart.png")
    assert list(tmp_path.iterdir()) == []
