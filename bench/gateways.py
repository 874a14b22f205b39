"""The gateways that are measured: how each is started in front of the workers of a set-up."""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
from attrs import frozen

from bench.cases import ADDRESSES, Setup
from bench.processes import Cores, free_port, python, running, wait_until_ready, wait_until_serving
from bench.programs import Programs

FLOOR_A: Final = "floor A"
FLOOR_B: Final = "floor B"
FLOOR_D: Final = "floor D"
KERNEL: Final = "kernel"


@frozen
class Pools:
    """The URLs of the workers of a set-up, all of one mock worker under addresses of its own."""

    one: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    generation: tuple[str, ...] = ()

    @classmethod
    def of(cls, setup: Setup, port: int) -> "Pools":
        """Those of a set-up, with a worker that listens on `port`."""
        urls = [f"http://127.0.{number >> 8}.{number & 255}:{port}" for number in range(1, ADDRESSES + 1)]
        if setup.pairs:
            return cls((), tuple(urls[: setup.workers]), tuple(urls[setup.workers : 2 * setup.workers]))
        return cls(tuple(urls[: setup.workers]))


@frozen
class Gateway:
    """A gateway that runs: its processes and port, and the file that it was configured with."""

    processes: tuple[int, ...]
    port: int
    file: Path | None = None


Start: TypeAlias = Callable[[ExitStack, Setup, Pools, Cores], Gateway]
"""Starts a gateway, which ends with the stack, and returns once it serves."""


@contextmanager
def mock_worker(programs: Programs, rules: Path, cores: Collection[int]) -> Iterator[int]:
    """The port of a mock worker under `ADDRESSES` addresses."""
    command = [str(programs.worker), str(rules), str(ADDRESSES)]
    with running(command, cores, piped=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline()
        wait_until_ready(int(port or 0), "the mock worker", process)
        yield int(port)


def configuration(setup: Setup, pools: Pools, port: int, without: str | None = None) -> dict[str, Any]:
    """What `kernel run` is given: the address, the workers, and nothing else; `without` a plugin, if one is named."""
    policy = {} if setup.policy is None else {"policy": setup.policy}
    if setup.pairs:
        phases = {
            "context": {"workers": pools.context, **policy},
            "generation": {"workers": pools.generation, **policy},
        }
        pool = {"model": setup.model, "engine": setup.model, **phases}
    else:
        pool = {"model": setup.model, "engine": "openai", "workers": pools.one, **policy}
    plugins: dict[str, Any] = {"dispatch": {"config": {"pools": [pool]}}}
    if without is not None:
        plugins[without] = {"enabled": False}
    return {"listen": f"127.0.0.1:{port}", "plugins": plugins}


def start_kernel(
    stack: ExitStack, setup: Setup, pools: Pools, cores: Cores, without: str | None = None, processes: int = 1
) -> Gateway:
    """Start `kernel run`, with its log going nowhere."""
    port = free_port()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-bench-"))
    file = Path(folder, "kernel.yaml")
    file.write_bytes(orjson.dumps(configuration(setup, pools, port, without)))  # JSON is YAML
    command = python("plugins.host", "run", str(file), f"--workers={processes}")
    process = stack.enter_context(running(command, cores.gateway, quiet=True))
    wait_until_ready(port, KERNEL if without is None else f"the kernel without {without}", process)
    return Gateway(wait_until_serving(process, processes), port, file)


def start_floor(name: str) -> Start:
    """What starts that floor."""

    def start(stack: ExitStack, setup: Setup, pools: Pools, cores: Cores) -> Gateway:
        port = free_port()
        lists = {"one": pools.one, "context": pools.context, "generation": pools.generation}
        options = [f"--{role}={','.join(urls)}" for role, urls in lists.items() if urls]
        command = python("bench.floors", name[-1], f"--port={port}", f"--model={setup.model}", *options)
        process = stack.enter_context(running(command, cores.gateway))
        wait_until_ready(port, name, process, None)
        return Gateway((process.pid,), port)

    return start


GATEWAYS: Final[Mapping[str, Start]] = {
    FLOOR_A: start_floor(FLOOR_A),
    FLOOR_B: start_floor(FLOOR_B),
    FLOOR_D: start_floor(FLOOR_D),
    KERNEL: start_kernel,
}
"""Each gateway by its name, in the order of their turns."""
