"""What a breaker knows of one worker: its state, its failures in a row, and its outcomes of late."""

from enum import StrEnum
from typing import Final

from attrs import define, field


class State(StrEnum):
    """Whether a worker may be chosen: always, not now, for one request, or not while that one runs."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    PROBED = "probed"


class Verdict(StrEnum):
    """What an attempt says of its worker.

    `NEUTRAL` says nothing: the request was at fault, or its client left. `PRESSURE`: the worker has too much to do,
    and no fault.
    """

    SUCCESS = "success"
    FAILURE = "failure"
    PRESSURE = "pressure"
    NEUTRAL = "neutral"


CLOSED: Final = State.CLOSED
SUCCESS: Final = Verdict.SUCCESS
"""Under names of their own, since to look up a member of an enum takes longer than all else that a success needs."""


@define(eq=False)
class Window:
    """Outcomes of the last while, counted in two halves, of which the older one is dropped as time goes on."""

    failed: int = 0
    ended: int = 0
    _failed_before: int = 0
    _ended_before: int = 0
    _since: float = 0.0

    def note(self, now: float, seconds: float, *, failed: bool) -> None:
        """Count an outcome; `seconds` is how long it counts."""
        if now - self._since >= seconds / 2:
            self._turn(now, seconds / 2)
        self.ended += 1
        self.failed += failed

    def totals(self, now: float, seconds: float) -> tuple[int, int]:
        """How many failed, and how many there were."""
        self._turn(now, seconds / 2)
        return self.failed + self._failed_before, self.ended + self._ended_before

    def clear(self) -> None:
        """Forget them."""
        self.failed = self.ended = self._failed_before = self._ended_before = 0

    def _turn(self, now: float, half: float) -> None:
        age = now - self._since
        if age < half:
            return
        if age < 2 * half:
            self._failed_before, self._ended_before = self.failed, self.ended
        else:
            self._failed_before = self._ended_before = 0
        self.failed = self.ended = 0
        self._since = now


@define(eq=False)
class Circuit:
    """One worker's. `repeats`: how often it was ejected of late. `until`: when it may be probed."""

    state: State = State.CLOSED
    streak: int = 0
    repeats: int = 0
    until: float = 0.0
    closed: float = 0.0
    window: Window = field(factory=Window)

    @property
    def allows(self) -> bool:
        """Whether the worker may be chosen."""
        return self.state is State.CLOSED or self.state is State.HALF_OPEN
