"""What is said of a run: tables for people, JSON for programs."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import Any, Final

from bench.cases import Case
from bench.measure import FLOOR_A, FLOOR_B, Sample
from bench.processes import Cores

LIBRARIES: Final = ("aiohttp", "httptools", "starlette", "uvicorn", "uvloop")

_FLOORS: Final = {"/A": FLOOR_A, "/B": FLOOR_B}
_HEADINGS: Final = ("us", "range", *_FLOORS, "per s", "busy", "p50 ms", "p99 ms")
_WIDTHS: Final = (9, 15, 7, 7, 8, 6, 8, 8)


def environment(cores: Cores) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "gateway_cores": sorted(cores.gateway),
        "other_cores": sorted(cores.others),
        **{name: version(name) for name in LIBRARIES},
    }


def summarize(taken: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, Any]]:
    """The figures of each gateway in one case, out of its rounds."""
    return {
        name: {
            "microseconds": median(sample.microseconds for sample in samples),
            "rounds": [sample.microseconds for sample in samples],
            **{mark: _ratio(samples, taken[floor]) for mark, floor in _FLOORS.items()},
            "requests_per_second": median(sample.requests / sample.seconds for sample in samples),
            "busy": median(sample.busy for sample in samples),
            "p50_milliseconds": median(sample.median_seconds for sample in samples) * 1e3,
            "p99_milliseconds": median(sample.slow_seconds for sample in samples) * 1e3,
        }
        for name, samples in taken.items()
    }


def _ratio(samples: Sequence[Sample], floor: Sequence[Sample]) -> float:
    """The median of the ratios within a round: what disturbs a whole round cancels out."""
    return median(own.microseconds / other.microseconds for own, other in zip(samples, floor, strict=True))


def table(case: Case, figures: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of one case."""
    lines = [f"{case.title}, for each {case.unit}", _line("", _HEADINGS)]
    for name, figure in figures.items():
        lowest, highest = min(figure["rounds"]), max(figure["rounds"])
        values = (
            f"{figure['microseconds']:.1f}",
            f"{lowest:.1f}-{highest:.1f}",
            *(f"{figure[mark]:.2f}" for mark in _FLOORS),
            f"{figure['requests_per_second']:.0f}",
            f"{figure['busy']:.0%}",
            f"{figure['p50_milliseconds']:.2f}",
            f"{figure['p99_milliseconds']:.2f}",
        )
        lines.append(_line(name, values))
    return "\n".join(lines)


def _line(name: str, values: Sequence[str]) -> str:
    return f"  {name:<8}" + "".join(f"{value:>{width}}" for value, width in zip(values, _WIDTHS, strict=True))


def chain_table(title: str, costs: Mapping[str, float]) -> str:
    """The table of the steps of one section."""
    width = max(map(len, costs))
    return "\n".join((title, *(f"  {name:<{width}}  {cost:8.2f} us" for name, cost in costs.items())))
