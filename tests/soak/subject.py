"""The kernel of the soak, a process of its own, and what can be seen of it from outside."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from attrs import define

from tests.host.process import Kernel, start
from tests.host.wire import parse_answers, request
from tests.soak.fleet import MODELS, Fleet

KEPT_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 1.0

Metrics = dict[str, float]


@define(eq=False)
class Subject:
    """A running kernel."""

    kernel: Kernel
    port: int

    @property
    def pid(self) -> int:
        """Its process."""
        return self.kernel.process.pid

    def resident(self) -> int:
        """Its memory in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def metrics(self) -> Metrics:
        """Every sample of `/metrics`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request("/metrics", b"", "connection: close", method="GET"))
        (answer,) = parse_answers(await reader.read())
        writer.close()
        lines = answer.body.decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if name[:1] != "#"}

    def alarms(self) -> list[str]:
        """What it logged that is due to neither a worker nor a client."""
        return [f"logged: {line}"[:1000] for line in self.kernel.errors().splitlines()]


def total(metrics: Metrics, name: str, **labels: str) -> float:
    """The sum over all samples of a metric with these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    named = ((key, value) for key, value in metrics.items() if key.partition("{")[0] == name)
    return sum(value for key, value in named if all(label in key for label in wanted))


def configuration(fleet: Fleet) -> str:
    """What the kernel is told; JSON, which YAML takes as it is."""
    pools = []
    for model in MODELS:
        pool: dict[str, Any] = {"model": model.name, "engine": dict(model.engine)}
        for role, stubs in fleet.stubs[model.name].items():
            workers = [_place(stub) for stub in stubs]
            pool |= {"workers": workers} if role == "both" else {role: {"workers": workers}}
        pools.append(pool)
    dispatch = {
        "health": {"interval_seconds": 2.0, "failures": 1, "slow_start_seconds": 0},
        "read_timeout_seconds": LIMIT_SECONDS,
        "total_timeout_seconds": LIMIT_SECONDS,
        "keep_alive_seconds": KEPT_SECONDS,
        "pools": pools,
    }
    settings = {"listen": "127.0.0.1:0", "log": {"level": "error", "format": "json"}}
    return json.dumps({**settings, "plugins": {"dispatch": {"config": dispatch}}})


def _place(stub: Any) -> dict[str, Any]:
    place = {"url": stub.url}
    return place if stub.side_port is None else {**place, "bootstrap_port": stub.side_port}


@asynccontextmanager
async def run_subject(fleet: Fleet, folder: Path) -> AsyncIterator[Subject]:
    """Run a kernel in front of a fleet."""
    config = folder / "kernel.yaml"
    config.write_text(configuration(fleet))
    with start(config) as process:
        kernel = Kernel(process, config)
        instance = await asyncio.to_thread(kernel.instance)
        yield Subject(kernel, int(instance.state.listen.rpartition(":")[2]))
