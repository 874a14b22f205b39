"""Each worker in turn."""

from heapq import heapify, heappop, heappush, heapreplace

from attrs import define, field, frozen

from plugins.board import own_place
from plugins.dispatch.candidates import Candidates, Turn
from plugins.dispatch.policy import Facts
from plugins.dispatch.roster import Roster
from plugins.dispatch.worker import Worker


@define(eq=False)
class Strides:
    """Turns for workers whose shares differ: next is who has had the least for its share.

    Each turn moves a worker on by what is left of a whole turn when its share is taken from it.
    """

    _heap: list[tuple[float, int]] = field(factory=list, init=False)
    _version: int = field(default=-1, init=False)

    def next(self, candidates: Candidates) -> Worker:
        """Take the turn of one of the candidates."""
        roster = candidates.roster
        if self._version != roster.shares.version:
            self._version = roster.shares.version
            self._rebuild(roster)
        heap, skipped = self._heap, []
        while not candidates.mask >> heap[0][1] & 1:
            skipped.append(heappop(heap))
        had, index = heap[0]
        worker = roster.at(index)
        heapreplace(heap, (had + 1 / worker.share, index))
        for entry in skipped:
            heappush(heap, entry)
        return worker

    def _rebuild(self, roster: Roster) -> None:
        """Let members keep what they had; who is new begins where the others are."""
        had = {index: turns for turns, index in self._heap}
        now = min(had.values(), default=0.0)
        self._heap = [(had.get(worker.index, now + 1 / worker.share), worker.index) for worker in roster.members]
        heapify(self._heap)
        for _ in range(0 if had else own_place()):  # several processes do not all begin with the same worker
            turns, index = self._heap[0]
            heapreplace(self._heap, (turns + 1 / roster.at(index).share, index))


@frozen
class RoundRobin:
    """Choose each worker in turn, whatever its load; one of twice the weight gets twice as many turns."""

    _turn: Turn = field(init=False, factory=Turn, eq=False, repr=False)
    _strides: Strides = field(init=False, factory=Strides, eq=False, repr=False)

    def choose(self, candidates: Candidates, _facts: Facts, /) -> Worker:
        """The worker behind the one that was chosen last."""
        if candidates.roster.shares.uniform:
            worker = candidates.after(self._turn.last)
        else:
            worker = self._strides.next(candidates)
        self._turn.last = worker.index
        return worker


POLICY = RoundRobin
