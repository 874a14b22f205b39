"""Several processes on one port: what a second one brings, and what it costs each request."""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from attrs import evolve

from bench.bodies import write_rules
from bench.cases import CASES, PAUSES, Case
from bench.gateways import Gateway, Pools, mock_worker, start_kernel
from bench.loads import Sample
from bench.processes import Cores
from bench.programs import build_programs
from bench.turns import Bench

COUNTS: Final = (1, 2)
SEVERAL: Final = ("one_leg", "one_leg_32k", "prefix", "prefix_32k", "paced")


def measure_cores(
    rounds: int, tell: Callable[[str], None], names: Sequence[str] = SEVERAL, *, quick: bool
) -> dict[str, Any]:
    """Cases by their names, with a gateway of so many processes by its name; they take turns on all cores.

    Beside them the load generator and the workers run on the same cores: with two cores, two processes can be no more
    than what those leave over.

    Raises:
        BenchError: something did not do what it had to.
    """
    cores = Cores.of_this_machine()
    everywhere = evolve(cores, gateway=cores.gateway | cores.others, others=cores.gateway | cores.others)
    cases = [case.quick() if quick else case for case in CASES if case.name in names]
    document: dict[str, Any] = {}
    with ExitStack() as stack:
        programs = build_programs()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-bench-")))
        worker = stack.enter_context(
            mock_worker(programs, write_rules(folder, cases[0].tokens, PAUSES), everywhere.others)
        )
        bench = Bench({}, worker, programs.load, folder, everywhere, rounds, tell)
        for case in cases:
            tell(case.name)
            document[case.name] = {"title": case.title, "unit": case.unit, "processes": _measure(bench, case)}
    return document


def _measure(bench: Bench, case: Case) -> dict[str, Any]:
    load, samples = bench.write(case), dict[int, list[tuple[Sample, float]]]()
    with ExitStack() as stack:
        pools = Pools.of(case.setup, bench.worker)
        gateways = {count: start_kernel(stack, case.setup, pools, bench.cores, processes=count) for count in COUNTS}
        for turn in range(1, bench.rounds + 1):
            for count, gateway in gateways.items():
                before = _spent(gateway)
                sample = load.run(gateway, bench.cores, turn)
                spent = [after - then for after, then in zip(_spent(gateway), before, strict=True)]
                samples.setdefault(count, []).append((sample, max(spent) / sum(spent)))
    return {str(count): _figures(case, taken) for count, taken in samples.items()}


def _figures(case: Case, taken: Sequence[tuple[Sample, float]]) -> dict[str, float]:
    """Medians: what a unit costs on processors, units in a second, the slowest of a hundred, the busiest's share."""
    units = case.tokens if case.unit == "us/token" else 1
    return {
        "microseconds": median(sample.value for sample, _ in taken),
        "per_second": median(sample.requests * units / sample.seconds for sample, _ in taken),
        "p99_milliseconds": median(sample.whole["p99"] for sample, _ in taken) * 1e3,
        "busiest": median(share for _, share in taken),
    }


def _spent(gateway: Gateway) -> list[int]:
    """Nanoseconds that each process was on a processor; in /proc the first of three numbers."""
    return [int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in gateway.processes]


def cores_table(document: dict[str, Any]) -> str:
    """The document for people."""
    lines = [f"{os.cpu_count()} cores, shared with the load and the workers"]
    for case in document.values():
        lines += [f"\n{case['title']}, {case['unit']}", "  processes        us    per s    p99 ms   busiest"]
        for count, figures in case["processes"].items():
            lines.append(
                f"  {count:>9}{figures['microseconds']:>10.1f}{figures['per_second']:>9,.0f}"
                f"{figures['p99_milliseconds']:>10.2f}{figures['busiest']:>10.0%}"
            )
    return "\n".join(lines)
