"""The less loaded of two workers drawn at random."""

from attrs import field, frozen

from plugins.dispatch.candidates import Candidates, Draw
from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Worker


@frozen
class PowerOfTwo:
    """Draw two workers and choose the one with less work for its share.

    Nearly as even as the least loaded of all, and several frontends that do not know of each other's requests do
    not all choose the same worker.
    """

    _draw: Draw = field(init=False, factory=Draw, eq=False, repr=False)

    def choose(self, candidates: Candidates, _facts: Facts, /) -> Worker:
        """The less loaded one; the first if both are as loaded."""
        first = candidates.draw(self._draw)
        second = candidates.but(first).draw(self._draw)
        return second if (second.work + 1) / second.share < (first.work + 1) / first.share else first


POLICY = PowerOfTwo
