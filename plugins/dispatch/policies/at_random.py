"""Any worker."""

from attrs import field, frozen

from plugins.dispatch.candidates import Candidates, Draw
from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Worker


@frozen
class Random:
    """Choose at random, whatever the load; one of twice the weight is chosen twice as often."""

    _draw: Draw = field(init=False, factory=Draw, eq=False, repr=False)

    def choose(self, candidates: Candidates, _facts: Facts, /) -> Worker:
        """Any worker."""
        return candidates.draw(self._draw)


POLICY = Random
