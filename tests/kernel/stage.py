"""A runtime of the plugins in `parts`, whose file a test rewrites between reloads."""

import asyncio
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from kernel import KernelMiddleware, Runtime
from plugins.configuration import Document
from tests.kernel.parts import Answer, Part
from tests.kernel.support import Request, Shelf, standard_of

NAMES = ("left", "heir", "right", "answer")


class Counted:
    """A telemetry that remembers."""

    def __init__(self) -> None:
        self.reloads: list[bool] = []
        self.samples: list[Mapping[str, float]] = []

    def reloaded(self, accepted: bool) -> None:
        """Remember a reload."""
        self.reloads.append(accepted)

    def timed(self, seconds: Mapping[str, float]) -> None:
        """Remember a sample."""
        self.samples.append(seconds)


async def nowhere(*_: object) -> None:
    """The application behind, which nothing may reach."""
    raise AssertionError("passed by")


@define
class Stage:
    """One runtime, its file, and what happened to its plugins so far."""

    shelf: Shelf
    text: str = ""
    telemetry: Counted = field(factory=Counted)
    runtime: Runtime = field(init=False)
    app: KernelMiddleware = field(init=False)
    journal: list[str] = field(factory=lambda: Part.journal, init=False)

    def __attrs_post_init__(self) -> None:
        for forgotten in (Part.journal, Part.gates, Answer.gates):
            forgotten.clear()
        entries = {name: f"tests.kernel.parts:{name.upper()}" for name in NAMES}
        self.shelf.install("parts", entries)
        standard = standard_of(*NAMES, telemetry=self.telemetry)
        self.runtime = Runtime(standard, lambda: Document.parse(self.text, "kernel.yaml"))
        self.app = KernelMiddleware(nowhere, runtime=self.runtime)

    def write(self, **parts: Any) -> None:
        """Rewrite the file: labels by plugin, or whole configurations; None switches off."""
        lines = ["plugins:"]
        for name, value in parts.items():
            match value:
                case None:
                    lines.append(f"  {name}: {{enabled: false}}")
                case str():
                    lines.append(f"  {name}: {{config: {{label: {value}}}}}")
                case _:
                    lines.append(f"  {name}: {{config: {value}}}")
        self.text = "\n".join(lines)

    async def reload(self, **parts: Any) -> tuple[str, ...]:
        """Rewrite the file and reload."""
        self.write(**parts)
        return await self.runtime.reload()

    def take_journal(self) -> list[str]:
        """What happened since the last time that this was asked."""
        taken = [*self.journal]
        self.journal.clear()
        return taken

    def hold(self, request_id: str) -> tuple[asyncio.Task[Request], asyncio.Event]:
        """Begin a request that is answered when its gate is opened."""
        gate = Answer.gates[request_id] = asyncio.Event()
        request = Request(self.app, headers=(("x-request-id", request_id),))
        return asyncio.create_task(request.run()), gate

    def gate(self, key: str) -> asyncio.Event:
        """Keep `start NAME LABEL` or `stop NAME LABEL` waiting."""
        Part.gates[key] = asyncio.Event()
        return Part.gates[key]

    async def ask(self) -> str:
        """One request's answer."""
        return (await Request(self.app).run()).text
