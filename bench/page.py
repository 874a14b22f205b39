"""The figures in `docs/performance.md`, made of the results that are committed beside it."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from bench.gateways import KERNEL
from bench.report import markdown_table
from bench.results import Results
from bench.stages import STAGES

FOLDER: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = FOLDER / "performance.md"
RESULTS: Final = FOLDER / "performance.json"
CHART: Final = FOLDER / "performance.png"

MEMORY: Final = "MiB"
_PART: Final = re.compile(r"(<!-- begin: ([a-z]+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)


def write(results: Results, page: Path = PAGE, file: Path = RESULTS) -> None:
    """Write the results, and the page's figures anew."""
    file.write_text(json.dumps(results, indent=1) + "\n")
    page.write_text(filled(page.read_text(), results))


def filled(text: str, results: Results) -> str:
    """The text of the page with the figures of the results between its marks."""

    def fill(found: re.Match[str]) -> str:
        return f"{found[1]}\n{PARTS[found[2]](results)}\n\n{found[3]}"

    return _PART.sub(fill, text)


def environment(results: Results) -> str:
    """What the figures depend on."""
    run = results["gateways"]
    values = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in run["environment"].items())
    rounds = "one round" if run["rounds"] == 1 else f"{run['rounds']} rounds"
    told = f"{values}; {rounds}." + (" Quick: these figures mean nothing." if run["quick"] else "")
    return f"**{results['note']}**\n\n{told}" if results["note"] else told


def _plain(value: object) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


def processor(results: Results) -> str:
    """Processor time: a line for each case, a column for each gateway."""
    return _gateways(results["gateways"], _costs, _cost)


def loads(results: Results) -> str:
    """The same of the run beside floors."""
    return _gateways(results["floors"], _costs, _cost)


def plugins(results: Results) -> str:
    """What each plugin costs: the kernel with it, less the kernel without it."""
    gateways = results["floors"]["cases"]["plugins"]["gateways"]
    rows = [
        (name.removeprefix("without "), f"{figures['less']:.1f}")
        for name, figures in gateways.items()
        if name != KERNEL
    ]
    return markdown_table(("plugin", "us/request"), rows)


def _costs(case: Mapping[str, Any]) -> bool:
    return case["unit"] != MEMORY and not any(name.startswith("without ") for name in case["gateways"])


def _cost(case: Mapping[str, Any], name: str) -> str:
    figures = case["gateways"][name]
    median = number(figures["median"])
    if name != KERNEL:
        return f"{median}, {figures['ratio']:.2f}" if "ratio" in figures else median
    lowest, highest = number(figures["lowest"]), number(figures["highest"])
    return f"**{median}**" if lowest == highest else f"**{median}** ({lowest}-{highest})"


def number(value: float) -> str:
    """A figure with as many digits as mean anything."""
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def tails(results: Results) -> str:
    """The latency of the slowest hundredth where 256 are answered at once."""
    key = "whole_p99_milliseconds"

    def show(case: Mapping[str, Any], name: str) -> str:
        return f"{case['gateways'][name][key]:.0f}" if key in case["gateways"][name] else "-"

    return _gateways(
        results["gateways"], lambda case: "256" in case["title"] and case["latency"] == "whole", show, "ms"
    )


def memory(results: Results) -> str:
    """Resident memory."""
    return _gateways(
        results["gateways"],
        lambda case: case["unit"] == MEMORY,
        lambda case, name: f"{case['gateways'][name]['median']:.0f}",
    )


def goals(results: Results) -> str:
    """What was to be reached, and whether it was."""
    run = results["gateways"]
    titles = {name: case["title"] for name, case in run["cases"].items()}
    rows = (
        (titles.get(goal["case"], goal["case"]), goal["measured"], goal["reached"], goal["reason"])
        for goal in run["goals"]
    )
    return markdown_table(("load", "what", "to reach", "in this run"), rows)


def cores(results: Results) -> str:
    """One process and several."""
    rows = (
        (
            f"{case['title']}, {case['unit']}",
            count,
            number(figures["microseconds"]),
            f"{figures['per_second']:,.0f}",
            number(figures["p99_milliseconds"]),
            f"{figures['busiest']:.0%}",
        )
        for case in results["cores"].values()
        for count, figures in case["processes"].items()
    )
    return markdown_table(("load", "processes", "cost", "in a second", "p99 ms", "share of the busiest"), rows)


def stages(results: Results) -> str:
    """What each stage costs, and its share."""
    cases = list(results["stages"].values())
    columns = [_shares(case["stages"]) for case in cases]
    rows = [(stage, *(column[stage] for column in columns)) for stage in STAGES]
    rows.append(("**all**", *(f"**{number(sum(case['stages'].values()))}**" for case in cases)))
    return markdown_table(("stage", *(f"{case['title']}, {case['unit']}" for case in cases)), rows)


def _shares(costs: Mapping[str, float]) -> dict[str, str]:
    whole = sum(costs.values())
    return {stage: f"{number(cost)} ({cost / whole:.0%})" for stage, cost in costs.items()}


def calls(results: Results) -> str:
    """How many calls each stage makes."""
    counted = results["calls"]
    rows = [(stage, *(str(kind.get(stage, 0)) for kind in counted.values())) for stage in STAGES]
    rows = [row for row in rows if any(cell != "0" for cell in row[1:])]
    rows.append(("**all**", *(f"**{sum(kind.values())}**" for kind in counted.values())))
    return markdown_table(("stage", *(kind.replace("_", " ") for kind in counted)), rows)


def _gateways(
    run: Mapping[str, Any],
    chosen: Callable[[Mapping[str, Any]], bool],
    show: Callable[[Mapping[str, Any], str], str],
    unit: str | None = None,
) -> str:
    cases = [case for case in run["cases"].values() if chosen(case)]
    names = gateway_names(cases)
    rows = (
        (
            f"{case['title']}, {unit or case['unit']}",
            *(show(case, name) if name in case["gateways"] else "-" for name in names),
        )
        for case in cases
    )
    return markdown_table(("load", *names), rows)


def gateway_names(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """The gateways of some cases: the kernel, and then the others as they come."""
    names = dict.fromkeys(name for case in cases for name in case["gateways"])
    return [*(name for name in names if name == KERNEL), *(name for name in names if name != KERNEL)]


PARTS: Final[Mapping[str, Callable[[Results], str]]] = {
    "environment": environment,
    "processor": processor,
    "goals": goals,
    "tails": tails,
    "memory": memory,
    "loads": loads,
    "plugins": plugins,
    "cores": cores,
    "stages": stages,
    "calls": calls,
}
"""What stands between the marks of that name."""
