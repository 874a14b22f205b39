"""Counts what is called in the thread of an event loop, while another thread says when."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from attrs import define, field

from bench.lockstep import SECONDS
from bench.stages import LOOP, stage_of

TURNS: Final = 12
"""Turns of the event loop after which nothing is left of what was begun."""

_OWN: Final = __file__
_INLINED: Final = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>"))
"""Functions up to Python 3.11, and none since."""


@define(eq=False)
class Tally:
    """The calls of functions, of Python and C, by stage; to go on in a coroutine or generator is a call as well."""

    _calls: Counter[str] = field(init=False, factory=Counter)

    def start(self) -> None:
        """Count from now on."""
        self._calls = Counter()
        sys.setprofile(self._see)

    def stop(self) -> Counter[str]:
        """Count no longer; returns how many calls belong to each stage."""
        sys.setprofile(None)
        return self._calls

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call":
            if code.co_name in _INLINED:
                return
        elif event != "c_call":
            return
        if code.co_filename == _OWN:
            return
        at: FrameType | None = frame
        while at is not None:
            stage = stage_of(at.f_code.co_filename)
            if stage is not None:
                self._calls[stage] += 1
                return
            at = at.f_back
        self._calls[LOOP] += 1


@define(eq=False)
class Steps:
    """An event loop that another thread goes through step by step."""

    loop: asyncio.AbstractEventLoop
    tally: Tally = field(factory=Tally)
    _done: "SimpleQueue[Any]" = field(init=False, factory=SimpleQueue)

    def settle(self) -> None:
        """Wait until the loop has done all that there was to do."""
        self._after(int)

    def start(self) -> None:
        """Count from now on."""
        self._after(self.tally.start)

    def stop(self) -> Counter[str]:
        """What was called since."""
        calls: Counter[str] = self._after(self.tally.stop)
        return calls

    def _after(self, function: Callable[[], object]) -> Any:
        self.loop.call_soon_threadsafe(self._turn, TURNS, function)
        return self._done.get(timeout=SECONDS)

    def _turn(self, left: int, function: Callable[[], object]) -> None:
        if left:
            self.loop.call_soon(self._turn, left - 1, function)
        else:
            self._done.put(function())
