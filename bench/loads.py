"""One load of one gateway: what the load generator is told, and the sample that it gives."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
from attrs import frozen

from bench.bodies import make_answer, make_request, make_stream
from bench.cases import Case
from bench.gateways import Gateway
from bench.processes import BenchError, Cores, running

TIMEOUT_SECONDS: Final = 600
NUMBERS: Final = 10_000_000
"""How far the numbers of unique requests of two rounds are apart."""


@frozen
class Sample:
    """What one run of one gateway gave: `value` is in the unit of the case, everything else as it was counted.

    `first` and `whole` are seconds until the first and the last byte of a body's: `count`, `p50`, `p99`, `most`.
    """

    value: float
    requests: int = 0
    left: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    first: Mapping[str, float] = {}
    whole: Mapping[str, float] = {}
    reloads: int = 0


@frozen
class Load:
    """The load of a case: its request and the expected answer, in files."""

    program: Path
    case: Case
    body: Path
    answer: Path
    unique_at: int

    @classmethod
    def write(cls, program: Path, case: Case, folder: Path) -> "Load":
        """Write the files."""
        request = make_request(case.setup.model, case.size, stream=case.streams, pause=case.pause)
        body, answer = folder / f"{case.name}-body", folder / f"{case.name}-expected"
        body.write_bytes(request)
        answer.write_bytes(make_stream(case.tokens) if case.streams else make_answer())
        return cls(program, case, body, answer, request.index(b'"x') + 1)

    def command(self, gateway: Gateway, turn: int) -> list[str]:
        """The load generator's command line."""
        case = self.case
        options: dict[str, Any] = {
            "port": gateway.port,
            "body": self.body,
            "answer": self.answer,
            "connections": case.connections,
            "warmup": case.warmup,
            "requests": case.requests,
            "leave": case.leave,
            "timeout": TIMEOUT_SECONDS,
        }
        if case.unique:
            options |= {"unique": self.unique_at, "first": turn * NUMBERS}
        words = [f"--{name}={value}" for name, value in options.items()]
        return [str(self.program), *words, *(f"--pid={pid}" for pid in gateway.processes)]

    def run(
        self,
        gateway: Gateway,
        cores: Cores,
        turn: int = 0,
        beside: Callable[[], None] | None = None,
    ) -> Sample:
        """Load a gateway, which is warmed up first; `beside` is called each second meanwhile.

        Raises:
            BenchError: an answer was not the expected one.
        """
        with running(self.command(gateway, turn), cores.others, piped=True, told=True) as process:
            while True:
                try:
                    printed, reason = process.communicate(timeout=1.0 if beside else None)
                    break
                except subprocess.TimeoutExpired:
                    assert beside is not None
                    beside()
        if process.returncode:
            raise BenchError(f"{self.case.name}: {reason.strip()}")
        return self.sample(orjson.loads(printed))

    def sample(self, said: Mapping[str, Any]) -> Sample:
        """What the load generator said, by the unit of the case."""
        units = said["requests"] * (self.case.tokens if self.case.unit == "us/token" else 1)
        return Sample(value=said["processor_seconds"] / units * 1e6, **said)
