"""Each worker in turn."""

from collections.abc import Sequence

from attrs import define, field, frozen

from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Worker


@define(eq=False)
class Ring:
    """Remembers the place of the worker that was chosen last."""

    last: int = -1

    def after(self, candidates: Sequence[Worker]) -> Worker:
        """The next candidate behind that place, from the start again after the last one.

        The place is one in the configuration and not among the candidates, so that the neighbour of a
        worker that is down does not get its share on top of its own.
        """
        chosen = candidates[0]
        for worker in candidates:
            if worker.index > self.last:
                chosen = worker
                break
        self.last = chosen.index
        return chosen


@frozen
class RoundRobin:
    """Choose each worker in turn, whatever its load."""

    _ring: Ring = field(init=False, factory=Ring, eq=False, repr=False)

    def choose(self, candidates: Sequence[Worker], _facts: Facts, /) -> Worker:
        """The worker behind the one that was chosen last."""
        return self._ring.after(candidates)


POLICY = RoundRobin
