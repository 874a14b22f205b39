"""A clock that tests move on by hand."""

from collections.abc import Callable

from attrs import define


@define(eq=False)
class Clock:
    """Stands in for the time of a loop of the standard library."""

    time: Callable[[], float]
    ahead: float = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.time() + self.ahead

    def move(self, seconds: float) -> None:
        """Let time go by."""
        self.ahead += seconds
