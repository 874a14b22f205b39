"""Reloads of a kernel while it is loaded: its file is written anew, as an operator does who saves it."""

import re
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import orjson
from attrs import define, evolve, field

from bench.cases import Case
from bench.gateways import KERNEL, Gateway, start_kernel
from bench.loads import Load, Sample
from bench.processes import BenchError, fetch
from bench.turns import Bench, Result

WAIT_SECONDS: Final = 30.0

_ACCEPTED: Final = re.compile(rb'^kernel_reloads_total\{result="accepted"\} (\S+)', re.MULTILINE)

ALONE: Final = "left alone"


def measure_reloads(bench: Bench, case: Case) -> Result:
    """A kernel that is reloaded each second while it is loaded, and in turn with it the same one left alone."""

    def run(load: Load, name: str, gateway: Gateway, turn: int) -> Sample:
        if name == ALONE:
            return bench.run(load, name, gateway, turn)
        with Reloads(gateway) as reloads:
            sample = bench.run(load, name, gateway, turn, reloads.reload)
        return evolve(sample, reloads=reloads.count)

    with ExitStack() as stack:
        gateway = bench.start(stack, case.setup, {KERNEL: start_kernel})[KERNEL]
        return bench.take_turns(case, {KERNEL: gateway, ALONE: gateway}, run)


@define(eq=False)
class Reloads:
    """Reloads one gateway; at the end of a `with` block, `count` is how many it took."""

    gateway: Gateway
    count: int = field(default=0, init=False)
    _before: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        self._before = self._accepted()
        self.reload()
        return self

    def reload(self) -> None:
        """Give the first pool another alias, which makes its part of dispatch anew; the file is never half written."""
        file = self.gateway.file
        assert file is not None
        document = orjson.loads(file.read_bytes())
        pool = document["plugins"]["dispatch"]["config"]["pools"][0]
        pool["aliases"] = [] if pool.get("aliases") else ["other"]
        fresh = file.with_suffix(".fresh")
        fresh.write_bytes(orjson.dumps(document))
        fresh.replace(file)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            return
        deadline = time.monotonic() + WAIT_SECONDS
        while not (count := self._accepted() - self._before):
            if time.monotonic() > deadline:
                raise BenchError("the gateway was not reloaded")
            time.sleep(0.05)
        self.count = count

    def _accepted(self) -> int:
        found = _ACCEPTED.search(fetch(self.gateway.port, "/metrics"))
        return int(float(found[1])) if found else 0
