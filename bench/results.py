"""The results that `docs/performance.md` shows: gathered from runs, without what nobody reads there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

_SHOWN: Final = ("median", "lowest", "highest", "ratio", "less", "whole_p99_milliseconds")

Results: TypeAlias = Mapping[str, Any]
"""`note`, a sentence; `gateways`, the document of a run beside other routers; `floors`, that of one beside floors;
`stages`, what they cost by case; `cores`, figures of several processes by case; `calls`, by kind and stage."""


def collect(folder: Path, calls: Mapping[str, Mapping[str, int]], note: str = "") -> Results:
    """The results of runs that have left their files in a folder, with a note of what is to be known of them.

    Raises:
        FileNotFoundError: one of them is missing.
    """
    stages = json.loads(folder.joinpath("stages.json").read_text())
    for case in stages.values():
        case["stages"] = {stage: _short(value) for stage, value in case["stages"].items()}
    cores = json.loads(folder.joinpath("cores.json").read_text())
    for case in cores.values():
        for count, figures in case["processes"].items():
            case["processes"][count] = {key: _short(value) for key, value in figures.items()}
    return {
        "note": note,
        "gateways": _read(folder / "peers.json"),
        "floors": _read(folder / "bench.json"),
        "stages": stages,
        "cores": cores,
        "calls": calls,
    }


def _read(file: Path) -> dict[str, Any]:
    """The document of a run, with what is shown of each gateway."""
    run: dict[str, Any] = json.loads(file.read_text())
    for case in run["cases"].values():
        for name, figures in case["gateways"].items():
            case["gateways"][name] = {key: _short(value) for key, value in figures.items() if key in _SHOWN}
    return run


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value
