"""Gateways that take turns: started before the workers of a set-up, and loaded one after the other, in rounds."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from attrs import frozen

from bench.cases import Case, Setup
from bench.gateways import Gateway, Pools, Start
from bench.loads import Load, Sample
from bench.processes import BenchError, Cores

Samples: TypeAlias = Mapping[str, list[Sample]]
"""Those of each gateway in one case, by its name: one of each round."""

Run: TypeAlias = Callable[[Load, str, Gateway, int], Sample]
"""One turn of the gateway with that name."""


@frozen
class Result:
    """What was measured of a case, under a name and a title of its own."""

    name: str
    title: str
    case: Case
    samples: Samples


@frozen
class Bench:
    """What all cases have in common: gateways, the worker's port, where load comes from, and how often."""

    starts: Mapping[str, Start]
    worker: int
    load: Path
    folder: Path
    cores: Cores
    rounds: int
    tell: Callable[[str], None]

    def start(self, stack: ExitStack, setup: Setup, starts: Mapping[str, Start] | None = None) -> dict[str, Gateway]:
        """Start gateways before the workers of a set-up; they share a core."""
        starts = self.starts if starts is None else starts
        self.tell(f"{setup.name}: starting {len(starts)} gateways")
        pools = Pools.of(setup, self.worker)
        return {name: start(stack, setup, pools, self.cores) for name, start in starts.items()}

    def write(self, case: Case) -> Load:
        """The load of a case."""
        return Load.write(self.load, case, self.folder)

    def take_turns(self, case: Case, gateways: Mapping[str, Gateway], run: Run | None = None) -> Result:
        """Measure a case in rounds: one turn of each gateway, by `run` if that is given, then the next round."""
        load = self.write(case)
        run = run or self.run
        taken: dict[str, list[Sample]] = {name: [] for name in gateways}
        for turn in range(1, self.rounds + 1):
            self.tell(f"{case.name}, round {turn} of {self.rounds}")
            for name, gateway in gateways.items():
                taken[name].append(run(load, name, gateway, turn))
        return Result(case.name, case.title, case, taken)

    def run(
        self, load: Load, name: str, gateway: Gateway, turn: int, beside: Callable[[], None] | None = None
    ) -> Sample:
        """One turn of one gateway; `beside` is called each second meanwhile.

        Raises:
            BenchError: an answer was not the expected one.
        """
        try:
            return load.run(gateway, self.cores, turn, beside)
        except BenchError as error:
            raise BenchError(f"{name}: {error}") from None
