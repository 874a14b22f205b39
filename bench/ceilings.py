"""The most calls that a request and a token may make, and what is said once one makes more, or far fewer."""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.stages import STAGES

CEILINGS: Final = Path(__file__).parents[1] / "tests" / "bench" / "calls.toml"

OTHER_PYTHON: Final = 4
"""Calls that another version of Python may make more: its library is written otherwise in places."""

SLACK: Final = 0.05
"""The share of a ceiling by which calls may stay below it before it has to follow them."""


def read_ceilings(path: Path = CEILINGS) -> dict[str, int]:
    """The ceilings by kind, for the Python that runs."""
    data = tomllib.loads(path.read_text())
    spare = 0 if data["python"] == f"{sys.version_info.major}.{sys.version_info.minor}" else OTHER_PYTHON
    return {kind: ceiling + spare for kind, ceiling in data["calls"].items()}


def complaint(kind: str, calls: Mapping[str, int], ceiling: int) -> str | None:
    """What is wrong with the calls of a kind, by stage; nothing if they are at the ceiling or a little below."""
    total = sum(calls.values())
    if total > ceiling:
        advice = "take them out again, or raise it and say in the commit what they are worth"
        problem = f"{kind}: {total} calls, {total - ceiling} more than its ceiling of {ceiling}: {advice}"
    elif total < ceiling - OTHER_PYTHON - ceiling * SLACK:
        problem = f"{kind}: {total} calls, well below its ceiling of {ceiling}: lower it to {total} in {CEILINGS.name}"
    else:
        return None
    return "\n".join((problem, *(f"  {stage:<22}{number:>6}" for stage, number in calls.items())))


def calls_table(counted: Mapping[str, Mapping[str, int]]) -> str:
    """The table of all kinds, a line for each stage."""
    stages = [stage for stage in STAGES if any(stage in calls for calls in counted.values())]
    lines = [("calls", *counted)]
    lines += [(stage, *(str(calls.get(stage, "-")) for calls in counted.values())) for stage in stages]
    lines.append(("all", *(str(sum(calls.values())) for calls in counted.values())))
    return "\n".join(f"{stage:<22}" + "".join(f"{number:>9}" for number in numbers) for stage, *numbers in lines)
