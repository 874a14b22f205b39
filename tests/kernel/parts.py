"""Plugins with a life, for tests of the runtime: they note when they start, stop and take over."""

import asyncio
from typing import Any, ClassVar

from attrs import field, frozen

from kernel import BytesReply, CallNext, Exchange, PluginSpec, Reply


@frozen
class Part:
    """Passes requests on, and notes in the journal what happens to it."""

    journal: ClassVar[list[str]] = []
    gates: ClassVar[dict[str, asyncio.Event]] = {}
    """What `start of NAME` or `stop of NAME` waits for, where there is such a key."""

    label: str = "a"
    fail: str = ""
    name: ClassVar[str] = "part"

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on, or answer."""
        return await call_next(exchange)

    async def start(self) -> None:
        """Start."""
        await self._note("start")

    async def stop(self) -> None:
        """Stop."""
        await self._note("stop")

    def unready(self) -> list[str]:
        """Say whether it is ready."""
        return [f"{self.name} is {self.label}"] if self.label.startswith("un") else []

    async def _note(self, what: str) -> None:
        self.journal.append(f"{what} {self.name} {self.label}")
        if f"{what} {self.name} {self.label}" in self.gates:
            await self.gates[f"{what} {self.name} {self.label}"].wait()
        if self.fail == what:
            raise ValueError(f"cannot {what}")
        if self.fail == f"{what} cancelled":
            helper = asyncio.create_task(asyncio.Event().wait())
            helper.cancel()
            await helper


@frozen
class Left(Part):
    """The outer one."""

    name: ClassVar[str] = "left"


@frozen
class Right(Part):
    """The inner one."""

    name: ClassVar[str] = "right"


@frozen
class Heir(Part):
    """Takes over from its predecessor."""

    name: ClassVar[str] = "heir"
    kept: dict[str, str] = field(factory=dict, init=False, eq=False)

    def succeed(self, predecessor: Any) -> None:
        """Take over."""
        self.journal.append(f"succeed {self.label} after {predecessor.label}")
        if self.fail == "succeed":
            raise ValueError("cannot succeed")
        self.kept.update(predecessor.kept)


@frozen
class Answer:
    """Says what it is asked to say, when the gate of a request is open."""

    text: str = "answer"
    gates: ClassVar[dict[str, asyncio.Event]] = {}
    """By request id."""

    async def __call__(self, exchange: Exchange, _call_next: CallNext) -> Reply:
        """Pass the exchange on, or answer."""
        if exchange.id in self.gates:
            with exchange.interruptible():
                await self.gates[exchange.id].wait()
        return BytesReply(self.text.encode())


LEFT = PluginSpec("left", Left)
RIGHT = PluginSpec("right", Right)
HEIR = PluginSpec("heir", Heir)
ANSWER = PluginSpec("answer", Answer)
