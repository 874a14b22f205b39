"""Runs cases against the floors and the kernel, in turn, and takes what each run cost."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Final

from attrs import frozen

from bench.bodies import ONE, TWO, make_answer, make_request, make_stream
from bench.cases import DELAY_SECONDS, QUICK_DELAY_SECONDS, QUICK_TOKENS, TOKENS, Case
from bench.load import Load
from bench.processes import Cores, free_port, processor_seconds, running, wait_until_ready

FLOOR_A: Final = "floor A"
FLOOR_B: Final = "floor B"
KERNEL: Final = "kernel"

TIMEOUT_SECONDS: Final = 120.0

WORKERS: Final = (ONE, "context", "generation")


@frozen
class Gateway:
    """A gateway that runs: its process and port."""

    pid: int
    port: int


@frozen
class Sample:
    """What one run of one gateway cost: seconds on processors and by the clock, and those of single answers."""

    units: int
    requests: int
    processor_seconds: float
    seconds: float
    median_seconds: float
    slow_seconds: float

    @property
    def microseconds(self) -> float:
        """Processor time for each unit."""
        return self.processor_seconds / self.units * 1e6

    @property
    def busy(self) -> float:
        """The share of a core that the gateway had."""
        return self.processor_seconds / self.seconds


def configuration(port: int, urls: Mapping[str, str]) -> str:
    """What `kernel run` is given: the address, the workers, and nothing else."""
    return f"""\
listen: 127.0.0.1:{port}
plugins:
  dispatch:
    config:
      pools:
        - model: {ONE}
          engine: openai
          workers: ["{urls[ONE]}"]
        - model: {TWO}
          engine: trtllm
          context: {{workers: ["{urls["context"]}"]}}
          generation: {{workers: ["{urls["generation"]}"]}}
"""


@contextmanager
def configured(text: str) -> Iterator[str]:
    """The path of a file with that text."""
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        path = Path(folder, "kernel.yaml")
        path.write_text(text)
        yield str(path)


async def start_workers(stack: AsyncExitStack, cores: Cores, *, quick: bool) -> dict[str, str]:
    """Start the mock workers; returns their URLs."""
    tokens, delay = (QUICK_TOKENS, QUICK_DELAY_SECONDS) if quick else (TOKENS, DELAY_SECONDS)
    urls = {}
    for name in WORKERS:
        port = free_port()
        arguments = ["bench.worker", f"--port={port}", f"--tokens={tokens}", f"--delay={delay}"]
        pid = stack.enter_context(running(arguments, cores.others))
        await wait_until_ready(port, f"the worker {name!r}", pid, healthy=True)
        urls[name] = f"http://127.0.0.1:{port}"
    return urls


async def start_gateways(stack: AsyncExitStack, urls: Mapping[str, str], cores: Cores) -> dict[str, Gateway]:
    """Start the floors and the kernel, which share a core and are loaded one after the other."""
    gateways = {}
    options = [f"--{name}={url}" for name, url in urls.items()]
    for name, floor in ((FLOOR_A, "A"), (FLOOR_B, "B")):
        port = free_port()
        pid = stack.enter_context(running(["bench.floors", floor, f"--port={port}", *options], cores.gateway))
        gateways[name] = Gateway(pid, port)
    port = free_port()
    path = stack.enter_context(configured(configuration(port, urls)))
    pid = stack.enter_context(running(["plugins.host", "run", path], cores.gateway, quiet=True))
    gateways[KERNEL] = Gateway(pid, port)
    for name, gateway in gateways.items():
        await wait_until_ready(gateway.port, name, gateway.pid, healthy=name == KERNEL)
    return gateways


async def run_case(case: Case, gateway: Gateway) -> Sample:
    """Load a gateway that is warmed up first.

    Raises:
        BenchError: an answer was not the expected one.
    """
    body = make_request(case.model, case.size, stream=bool(case.tokens))
    answer = make_stream(case.tokens) if case.tokens else make_answer()
    load = Load(gateway.port, body, answer, first_bytes=bool(case.tokens))
    try:
        await load.connect(case.connections)
        await load.run(case.warmup, TIMEOUT_SECONDS)
        began, spent = time.perf_counter(), processor_seconds(gateway.pid)
        taken = await load.run(case.requests, TIMEOUT_SECONDS)
        spent, seconds = processor_seconds(gateway.pid) - spent, time.perf_counter() - began
    finally:
        load.close()
    cuts = quantiles(taken, n=100, method="inclusive")
    return Sample(case.units, case.requests, spent, seconds, cuts[49], cuts[98])


async def measure(
    cases: Sequence[Case], rounds: int, tell: Callable[[str], None], *, cores: Cores, quick: bool
) -> dict[str, dict[str, list[Sample]]]:
    """The samples of each case and gateway, in rounds: one of each gateway, then the next round."""
    samples: dict[str, dict[str, list[Sample]]] = {}
    async with AsyncExitStack() as stack:
        urls = await start_workers(stack, cores, quick=quick)
        gateways = await start_gateways(stack, urls, cores)
        for case in cases:
            taken: dict[str, list[Sample]] = {name: [] for name in gateways}
            for turn in range(1, rounds + 1):
                tell(f"{case.name}, round {turn} of {rounds}")
                for name, gateway in gateways.items():
                    taken[name].append(await run_case(case, gateway))
                    await asyncio.sleep(0)  # connections that were closed are gone before the next turn
            samples[case.name] = taken
    return samples
