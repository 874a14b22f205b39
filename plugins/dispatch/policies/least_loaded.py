"""The worker with the fewest requests."""

from collections.abc import Sequence

from attrs import field, frozen

from plugins.dispatch.policies.round_robin import Ring
from plugins.dispatch.policy import Facts
from plugins.dispatch.worker import Worker


@frozen
class LeastLoaded:
    """Choose the worker with the least load; among equals, each in turn."""

    _ring: Ring = field(init=False, factory=Ring, eq=False, repr=False)

    def choose(self, candidates: Sequence[Worker], _facts: Facts, /) -> Worker:
        """The least loaded worker; of several, the one behind the last choice."""
        least = min(worker.load for worker in candidates)
        return self._ring.after([worker for worker in candidates if worker.load == least])


POLICY = LeastLoaded
