"""Measures the peers, the kernel and the floors: all that take part in a set-up, before the same workers, in turns."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Final

from attrs import evolve, field, frozen

from bench.cases import Case, Setup
from bench.gateways import GATEWAYS, KERNEL, Gateway, Pools, Start, mock_worker
from bench.loads import NUMBERS, Load, Sample
from bench.memory import measure_memory
from bench.peers.cases import MEMORY, PREFIX
from bench.peers.routers import PEERS
from bench.peers.workers import Ledger, write_peer_rules
from bench.processes import BenchError, Cores, resident_bytes
from bench.programs import build_programs
from bench.turns import Bench, Result

_FIRST_PROOF: Final = 500
"""The turn of the request by which the first gateway is looked at; no case has so many rounds."""


@frozen
class Outcome:
    """What was measured, and why what is missing was not: by case and gateway."""

    results: list[Result] = field(factory=list)
    failures: dict[tuple[str, str], str] = field(factory=dict)


def names() -> tuple[str, ...]:
    """The gateways, in the order of their turns."""
    return (*GATEWAYS, *(peer.name for peer in PEERS))


def starts_for(case: Case, only: Sequence[str]) -> dict[str, Start]:
    """What starts the gateways that take part in a case."""
    floors = case.setup is not PREFIX and case.kind == "load"  # floors have no policy
    starts = {name: start for name, start in GATEWAYS.items() if floors or name == KERNEL}
    starts |= {peer.name: peer.start for peer in PEERS if case.setup.model in peer.serves}
    return {name: start for name, start in starts.items() if not only or name in only}


def measure_peers(
    cases: Sequence[Case],
    rounds: int,
    tell: Callable[[str], None],
    cores: Cores,
    only: Sequence[str],
    outcome: Outcome,
) -> None:
    """Measure cases, in their order, with `only` these gateways, or with all; the outcome gets them as they come.

    Raises:
        BenchError: what all need is missing, as a compiler.
    """
    programs = build_programs()
    for (setup, kind), group in groupby(cases, key=lambda case: (case.setup, case.kind)):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-bench-")))
            rules = write_peer_rules(folder, setup.model, cases[0].tokens)
            worker = stack.enter_context(mock_worker(programs, rules, cores.others))
            those = tuple(group)
            bench = Bench(starts_for(those[0], only), worker, programs.load, folder, cores, rounds, tell)
            if kind == MEMORY:
                _measure_memory(bench, those[0], outcome)
            else:
                _Group(bench, Ledger(rules, Pools.of(setup, worker)), outcome).measure(stack, setup, those)


@frozen
class _Group:
    """The cases of one set-up."""

    bench: Bench
    ledger: Ledger
    outcome: Outcome

    def measure(self, stack: ExitStack, setup: Setup, cases: Sequence[Case]) -> None:
        """Measure them, and what the gateways hold in memory afterwards."""
        gateways: dict[str, Gateway] = {}
        for turn, (name, start) in enumerate(self.bench.starts.items(), _FIRST_PROOF):
            self.bench.tell(f"{setup.name}: starting {name}")
            try:
                gateways[name] = self._start(stack, start, cases[0], turn)
            except BenchError as error:
                self.outcome.failures.update({(case.name, name): str(error) for case in cases})
        for case in cases:
            self.outcome.results.append(self._take_turns(case, gateways))
        held = {name: [Sample(_resident(gateway))] for name, gateway in gateways.items()}
        title = f"resident memory after the cases of {setup.name}"
        self.outcome.results.append(Result(f"memory_{setup.name}", title, evolve(cases[0], kind=MEMORY), held))

    def _start(self, stack: ExitStack, start: Start, case: Case, turn: int) -> Gateway:
        """Start a gateway and look at what it does, once more if that fails: its port may not have stayed free."""
        try:
            return self._try(stack, start, case, turn)
        except BenchError as error:
            self.bench.tell(f"once more, because {error}")
            return self._try(stack, start, case, turn)

    def _try(self, stack: ExitStack, start: Start, case: Case, turn: int) -> Gateway:
        with ExitStack() as own:
            gateway = start(own, case.setup, self.ledger.pools, self.bench.cores)
            self._prove(case, gateway, turn)
            stack.enter_context(own.pop_all())
        return gateway

    def _prove(self, case: Case, gateway: Gateway, turn: int) -> None:
        """Send one request that no other is like, and look at what came of it to the workers."""
        one = evolve(case, connections=1, requests=1, warmup=0, unique=True)
        load = self.bench.write(one)
        self._run(load, gateway, turn)
        request, at, number = load.body.read_bytes(), load.unique_at, b"%016d" % (turn * NUMBERS)
        self.ledger.check_legs(request[:at] + number + request[at + len(number) :])

    def _take_turns(self, case: Case, gateways: Mapping[str, Gateway]) -> Result:
        """Measure a case in rounds; a gateway that fails is left out of its further ones."""
        load = self.bench.write(case)
        taken: dict[str, list[Sample]] = {name: [] for name in gateways}
        for turn in range(1, self.bench.rounds + 1):
            self.bench.tell(f"{case.name}, round {turn} of {self.bench.rounds}")
            for name in list(taken):
                try:
                    taken[name].append(self._run(load, gateways[name], turn))
                except BenchError as error:
                    del taken[name]
                    self.outcome.failures[case.name, name] = str(error)
        return Result(case.name, case.title, case, taken)

    def _run(self, load: Load, gateway: Gateway, turn: int) -> Sample:
        """One turn, all of which has to come to the workers of each role."""
        before = self.ledger.counts()
        sample = load.run(gateway, self.bench.cores, turn)
        self.ledger.check(load.case.warmup + load.case.requests, before)
        return sample


def _measure_memory(bench: Bench, case: Case, outcome: Outcome) -> None:
    """At rest, and with open streams; one gateway after the other, each alone."""
    results: dict[str, Result] = {}
    for name, start in bench.starts.items():
        try:
            of_one = measure_memory(evolve(bench, starts={name: start}), case)
        except BenchError as error:
            outcome.failures[case.name, name] = str(error)
            continue
        for own in of_one:
            samples = results.setdefault(own.name, evolve(own, samples={})).samples
            results[own.name] = evolve(own, samples={**samples, **own.samples})
    outcome.results.extend(results.values())


def _resident(gateway: Gateway) -> float:
    """MiB."""
    return sum(map(resident_bytes, gateway.processes)) / 2**20
