"""Finds out what each stage of a request costs: a case under a profiler, scaled to the same case without it."""

import json
import os
import pstats
import signal
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson
from attrs import frozen

from bench.attribution import Spent, attribute, budget
from bench.bodies import write_rules
from bench.cases import PAUSES, Case
from bench.gateways import Gateway, Pools, configuration, mock_worker
from bench.loads import Load
from bench.processes import Cores, free_port, python, running, wait_until_ready
from bench.programs import Programs, build_programs
from bench.stages import STAGES

NAMES: Final = ("one_leg", "trtllm", "vllm", "sglang", "paced")
"""The cases for which it is told."""


@frozen
class Profiling:
    """What all rounds have in common: the programs, a folder for what they leave, and who runs where."""

    programs: Programs
    folder: Path
    cores: Cores
    worker: int

    def measure(self, case: Case) -> dict[str, float]:
        """The microseconds of each stage for a unit of the case.

        Raises:
            BenchError: something did not do what it had to.
        """
        load = Load.write(self.programs.load, case, self.folder)
        profile = self.folder / "profile"
        with ExitStack() as stack:
            gateway = self._start(stack, case, profile)
            load.run(gateway, self.cores)
            plain = load.run(gateway, self.cores, 1).value
            [pid] = gateway.processes
            os.kill(pid, signal.SIGUSR1)
            before = Spent.of(pid)
            sample = load.run(gateway, self.cores, 2)
            spent = Spent.of(pid) - before
        units = (sample.requests + case.warmup) * (case.tokens if case.unit == "us/token" else 1)
        garbage = json.loads(profile.with_suffix(".gc").read_text())
        seconds = budget(attribute(pstats.Stats(str(profile)).stats), spent, plain / 1e6 * units, garbage)  # type: ignore[attr-defined]
        return {stage: value / units * 1e6 for stage, value in seconds.items()}

    def _start(self, stack: ExitStack, case: Case, profile: Path) -> Gateway:
        port = free_port()
        file = profile.with_suffix(".yaml")
        file.write_bytes(orjson.dumps(configuration(case.setup, Pools.of(case.setup, self.worker), port)))
        command = python("bench.profiled", str(profile), str(file))
        process = stack.enter_context(running(command, self.cores.gateway, quiet=True))
        wait_until_ready(port, "the kernel under a profiler", process)
        return Gateway((process.pid,), port, file)


def measure_stages(
    cases: Sequence[Case], rounds: int, tell: Callable[[str], None], cores: Cores
) -> dict[str, dict[str, Any]]:
    """For each case by its name `title`, `unit`, and `stages` in microseconds for a unit: medians of the rounds.

    Raises:
        BenchError: something did not do what it had to.
    """
    programs = build_programs()
    found = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-bench-")))
        rules = write_rules(folder, cases[0].tokens, PAUSES)
        worker = stack.enter_context(mock_worker(programs, rules, cores.others))
        profiling = Profiling(programs, folder, cores, worker)
        for case in cases:
            taken = []
            for turn in range(1, rounds + 1):
                tell(f"stages of {case.name}, round {turn} of {rounds}")
                taken.append(profiling.measure(case))
            found[case.name] = {"title": case.title, "unit": case.unit, "stages": middle(taken)}
    return found


def middle(taken: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each stage, scaled so that they add up to the median of the sums."""
    stages = {stage: median(round_[stage] for round_ in taken) for stage in STAGES}
    scale = median(sum(round_.values()) for round_ in taken) / sum(stages.values())
    return {stage: value * scale for stage, value in stages.items()}


def stages_table(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """The table for a terminal: a line for each stage, a column for each case."""
    columns = [case["stages"] for case in cases.values()]
    lines = [_line("us", cases), _line("for each", (case["unit"].removeprefix("us/") for case in cases.values()))]
    lines += [_line(stage, (f"{column[stage]:.2f}" for column in columns)) for stage in STAGES]
    lines.append(_line("all", (f"{sum(column.values()):.2f}" for column in columns)))
    return "\n".join(lines)


def _line(name: str, cells: Iterable[str]) -> str:
    return f"{name:<22}" + "".join(f"{cell:>10}" for cell in cells)
