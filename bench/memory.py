"""What gateways hold in memory: at rest, and while each connection has an open stream."""

from contextlib import ExitStack
from typing import Final

from attrs import evolve

from bench.cases import Case
from bench.gateways import Start
from bench.loads import Load, Sample
from bench.processes import resident_bytes
from bench.turns import Bench, Result

MOST_ROUNDS: Final = 2
"""Memory is nearly the same each time, and a round is long."""


def measure_memory(bench: Bench, case: Case) -> list[Result]:
    """Two results: of gateways that have just started, and the most that they held under the load."""
    rest: dict[str, list[Sample]] = {name: [] for name in bench.starts}
    streams: dict[str, list[Sample]] = {name: [] for name in bench.starts}
    load = bench.write(case)
    for turn in range(1, min(bench.rounds, MOST_ROUNDS) + 1):
        for name, start in bench.starts.items():
            bench.tell(f"{case.name} of {name}, round {turn}")
            before, under = _measure_one(bench, load, name, start, turn)
            rest[name].append(before)
            streams[name].append(under)
    open_streams = f"{case.title}, {case.connections:,} open streams"
    return [
        Result(f"{case.name}_rest", f"{case.title}, at rest", case, rest),
        Result(f"{case.name}_streams", open_streams, case, streams),
    ]


def _measure_one(bench: Bench, load: Load, name: str, start: Start, turn: int) -> tuple[Sample, Sample]:
    seen: list[float] = []
    with ExitStack() as stack:
        gateway = bench.start(stack, load.case.setup, {name: start})[name]

        def look() -> None:
            seen.append(sum(map(resident_bytes, gateway.processes)) / 2**20)

        look()
        sample = bench.run(load, name, gateway, turn, look)
        look()
    return Sample(seen[0]), evolve(sample, value=max(seen))
