"""The document of a run, for programs: what the figures depend on, and medians, spread and ratios of each case."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import Any, Final

from attrs import asdict

from bench.gateways import KERNEL
from bench.loads import Sample
from bench.processes import Cores
from bench.turns import Result

LIBRARIES: Final = ("aiohttp", "httptools", "starlette", "uvicorn", "uvloop")


def summarize(results: Sequence[Result], cores: Cores, rounds: int, *, quick: bool) -> dict[str, Any]:
    """The document: `environment`, `rounds`, `quick`, and `cases` by their names.

    A case has `title`, `unit`, `latency` (until which byte the latencies are told that matter) and `gateways` by their
    names, each with what `_figures` says.
    """
    return {
        "environment": _environment(cores),
        "rounds": rounds,
        "quick": quick,
        "cases": {
            result.name: {
                "title": result.title,
                "model": result.case.setup.model,
                "unit": result.case.unit,
                "latency": "first" if result.case.streams else "whole",
                "gateways": {name: _figures(result.samples, name) for name in result.samples},
            }
            for result in results
        },
    }


def _environment(cores: Cores) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "gateway_cores": sorted(cores.gateway),
        "other_cores": sorted(cores.others),
        **{name: version(name) for name in LIBRARIES},
    }


def _figures(samples: Mapping[str, Sequence[Sample]], name: str) -> dict[str, Any]:
    """Of one gateway `median`, `lowest` and `highest` in the unit of the case, and `samples`, its rounds.

    `ratio`: what the kernel needs for each unit that this one needs. `less`: by how much this one needs less than the
    kernel. Both are medians of differences within a round, so that what disturbs a whole round cancels out.
    """
    own = samples[name]
    values = [sample.value for sample in own]
    figures: dict[str, Any] = {"median": median(values), "lowest": min(values), "highest": max(values)}
    if KERNEL in samples:
        pairs = [(kernel.value, sample.value) for kernel, sample in zip(samples[KERNEL], own, strict=True)]
        figures["ratio"] = median(kernel / value for kernel, value in pairs)
        figures["less"] = median(kernel - value for kernel, value in pairs)
    if all(sample.seconds for sample in own):
        figures["requests_per_second"] = median(sample.requests / sample.seconds for sample in own)
        figures["busy"] = median(sample.processor_seconds / sample.seconds for sample in own)
        for times in ("first", "whole"):
            for point in ("p50", "p99"):
                seconds = [getattr(sample, times)[point] for sample in own]
                figures[f"{times}_{point}_milliseconds"] = median(seconds) * 1e3
    return {**figures, "samples": [asdict(sample) for sample in own]}
