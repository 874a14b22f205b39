"""The retry budget of a model: retries are a share of its requests, so that they cannot double too high a load."""

from collections.abc import Callable
from time import monotonic

from attrs import define, field


@define(eq=False)
class RetryBudget:
    """Tokens: each request brings `share` of one, each second `floor`, a retry costs one.

    `cap` are kept at most, which is looked at when one is wanted.
    """

    share: float
    floor: float
    cap: float
    clock: Callable[[], float] = monotonic
    _tokens: float = field(init=False)
    _since: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tokens = min(self.cap, 10 * self.floor)
        self._since = self.clock()

    def deposit(self) -> None:
        """Count a request in."""
        self._tokens += self.share

    def take(self) -> bool:
        """Pay for a retry, if it can be paid for."""
        now = self.clock()
        self._tokens = min(self.cap, self._tokens + (now - self._since) * self.floor)
        self._since = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
