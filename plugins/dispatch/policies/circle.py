"""A circle of points by which keys find workers, the same in every process."""

from bisect import bisect
from collections.abc import Iterator
from hashlib import blake2b
from math import ceil
from struct import unpack
from typing import Final

from attrs import define, field

from plugins.dispatch.candidates import Candidates
from plugins.dispatch.roster import Roster
from plugins.dispatch.worker import Worker

STRIDES: Final = 64
"""Points that are looked at before a key is given up: with nine of ten workers down, one key in a thousand is."""

_TURN: Final = 2.0**64


def place_of(key: bytes) -> float:
    """Where a key is on the circle, from 0 to 1."""
    return int.from_bytes(blake2b(key, digest_size=8).digest()) / _TURN


@define(eq=False)
class Circle:
    """Has `points` points for a worker whose weight is 1, and more or fewer for others.

    Those of a worker that is down stay, so that it has its keys again when it is back.
    """

    points: int
    _places: list[float] = field(factory=list, init=False)
    _workers: dict[float, Worker] = field(factory=dict, init=False)
    _on: dict[Worker, float] = field(factory=dict, init=False)
    _changes: int = field(default=-1, init=False)

    def update(self, roster: Roster) -> None:
        """Take note of workers that are new, gone, or of another weight."""
        if self._changes == roster.changes:
            return
        self._changes = roster.changes
        known = {worker: worker.weight for worker in roster.known()}
        kept = {worker for worker, weight in self._on.items() if known.get(worker) == weight}
        if len(kept) < len(self._on):
            self._workers = {place: worker for place, worker in self._workers.items() if worker in kept}
        for worker in sorted(known.keys() - kept, key=lambda worker: worker.url):
            self._workers.update(dict.fromkeys(self._points_of(worker), worker))
        self._on = known
        self._places = sorted(self._workers)

    def find(self, place: float, candidates: Candidates, limit: float) -> Worker | None:
        """The first candidate behind a place whose load is below its part of `limit`, rounded up."""
        places, mask = self._places, candidates.mask
        start = bisect(places, place)
        for step in range(min(STRIDES, len(places))):
            worker = self._workers[places[(start + step) % len(places)]]
            if mask >> worker.index & 1 and worker.load < ceil(limit * worker.share):
                return worker
        return None

    def _points_of(self, worker: Worker) -> Iterator[float]:
        left = max(1, round(self.points * worker.weight))
        for turn in range(ceil(left / 8)):
            digest = blake2b(f"{worker.url}#{turn}".encode()).digest()
            yield from (number / _TURN for number in unpack(">8Q", digest)[: left - 8 * turn])
