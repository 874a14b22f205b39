"""Plugins that do not start, do not stop, or never come to an end of either."""

import asyncio
import sys

from attrs import frozen

from kernel import CallNext, Exchange, PluginSpec, Reply


class BaseFault(BaseException):
    """Something that is no Exception."""


@frozen
class Alive:
    """Passes on; does what its configuration says when it starts and stops."""

    at_start: str = ""
    at_stop: str = ""
    at_succession: str = ""
    at_question: str = ""
    at_making: str = ""

    def __attrs_post_init__(self) -> None:
        """Be made."""
        if self.at_making:
            sys.exit("no license")

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)

    async def start(self) -> None:
        """Start."""
        await _misbehave(self.at_start)

    async def stop(self) -> None:
        """Stop."""
        await _misbehave(self.at_stop)

    def succeed(self, predecessor: object) -> None:
        """Take over."""
        if self.at_succession:
            raise ValueError("no heir of that one")

    def unready(self) -> list[str]:
        """Say whether it is ready."""
        if self.at_question:
            raise ValueError("do not ask")
        return []


@frozen
class Synchronous:
    """Starts and stops without being asked to wait for it."""

    at_start: str = "fine"

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)

    def start(self) -> object:
        """Start, if at all."""
        return asyncio.sleep(0) if self.at_start == "fine" else None

    def stop(self) -> None:
        """Stop."""


async def _misbehave(how: str) -> None:
    match how:
        case "raise":
            raise OSError("the port is taken")
        case "fault":
            raise BaseFault
        case "exit":
            sys.exit("no license")
        case "hang":
            await asyncio.Event().wait()


SYNCHRONOUS = PluginSpec("animal", Synchronous, after="template_guard")
ALIVE = PluginSpec("animal", Alive, after="template_guard")
