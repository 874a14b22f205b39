"""Measures cases: those of one set-up together, before the same gateways."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final

from bench.bodies import write_rules
from bench.cases import PAUSES, Case
from bench.gateways import GATEWAYS, KERNEL, Start, mock_worker, start_kernel
from bench.memory import measure_memory
from bench.processes import Cores
from bench.programs import build_programs
from bench.reloads import measure_reloads
from bench.turns import Bench, Result
from plugins.order import STANDARD_ORDER

OPTIONAL: Final = tuple(line.name for line in STANDARD_ORDER if not line.required)
"""The plugins that can be switched off."""


_OWN: Final = ("reload", "plugins", "memory")
"""Kinds of cases that start gateways of their own."""


def measure(
    cases: Sequence[Case],
    rounds: int,
    tell: Callable[[str], None],
    cores: Cores,
    starts: Mapping[str, Start] = GATEWAYS,
) -> Iterator[Result]:
    """Measure cases, in their order, and give the results as they come.

    Raises:
        BenchError: something did not do what it had to.
    """
    programs = build_programs()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-bench-")))
        rules = write_rules(folder, cases[0].tokens, PAUSES)
        worker = stack.enter_context(mock_worker(programs, rules, cores.others))
        bench = Bench(starts, worker, programs.load, folder, cores, rounds, tell)
        for _, group in groupby(cases, key=lambda case: (case.setup, case.kind if case.kind in _OWN else None)):
            yield from _measure_group(bench, tuple(group))


def _measure_group(bench: Bench, cases: Sequence[Case]) -> Iterator[Result]:
    kind, starts = cases[0].kind, bench.starts
    if kind == "memory":
        for case in cases:
            yield from measure_memory(bench, case)
        return
    if kind == "reload":
        yield from (measure_reloads(bench, case) for case in cases)
        return
    if kind == "plugins":
        without = {f"without {name}": partial(start_kernel, without=name) for name in OPTIONAL}
        starts = {KERNEL: start_kernel, **without}
    with ExitStack() as stack:
        gateways = bench.start(stack, cases[0].setup, starts)
        yield from (bench.take_turns(case, gateways) for case in cases)
