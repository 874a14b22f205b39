"""What a policy chooses from: those of a roster that may serve one leg."""

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from random import choices, random
from typing import Final, overload

from attrs import define, field, setters

from plugins.board import own_place
from plugins.dispatch.levels import next_in
from plugins.dispatch.roster import Roster
from plugins.dispatch.worker import Worker

_DRAWS: Final = 8


@define(eq=False)
class Draw:
    """Draws members at random, each as often as its share says."""

    _version: int = field(default=-1, init=False)
    _sums: list[float] = field(factory=list, init=False)

    def any_of(self, roster: Roster) -> Worker:
        """Any member."""
        members = roster.members
        if roster.shares.uniform:
            return members[int(random() * len(members))]  # noqa: S311  # load is spread, nothing is guarded
        if self._version != roster.shares.version:
            self._version = roster.shares.version
            self._sums = list(accumulate(worker.share for worker in members))
        return members[min(bisect(self._sums, random() * self._sums[-1]), len(members) - 1)]  # noqa: S311


@define(eq=False, on_setattr=setters.frozen)
class Candidates(Sequence[Worker]):
    """One worker or more, in the order of the configuration; `mask` has their indexes.

    Whatever does not go through all of them takes about as long for a thousand workers as for ten. The same object
    may be what many requests choose from.
    """

    roster: Roster
    mask: int

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __contains__(self, worker: object) -> bool:
        return self.has(worker)

    def has(self, worker: object) -> bool:
        """What `in` says, which takes Python longer."""
        if not isinstance(worker, Worker) or not self.mask >> worker.index & 1:
            return False
        return self.roster.places[worker.index] is worker

    def __iter__(self) -> Iterator[Worker]:
        if self.mask == self.roster.mask:
            return iter(tuple(self.roster.members))
        return iter([worker for worker in self.roster.members if self.mask >> worker.index & 1])

    @overload
    def __getitem__(self, place: int) -> Worker: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Worker]: ...

    def __getitem__(self, place: int | slice) -> Worker | Sequence[Worker]:
        return (self.roster.members if self.mask == self.roster.mask else tuple(self))[place]

    def after(self, index: int) -> Worker:
        """The next one behind a place in the configuration, from the start again after the last one."""
        worker: Worker = self.roster.places[next_in(self.mask, index)]
        return worker

    def least(self, turn: "Turn") -> Worker:
        """The one with the least work for its share; among equals, each in turn."""
        _, lowest = self.roster.levels.lowest(self.mask)
        turn.last = next_in(lowest, turn.last)
        worker: Worker = self.roster.places[turn.last]
        return worker

    def draw(self, draw: Draw) -> Worker:
        """Any one, as often as its share says."""
        for _ in range(_DRAWS):
            worker = draw.any_of(self.roster)
            if self.mask >> worker.index & 1:
                return worker
        found = tuple(self)  # few of the members are left
        return choices(found, [worker.share for worker in found])[0]  # noqa: S311

    def but(self, worker: Worker) -> "Candidates":
        """The others, if there are any."""
        rest = self.mask & ~(1 << worker.index)
        return Candidates(self.roster, rest) if rest else self


@define(eq=False)
class Turn:
    """Remembers the place of the worker that was chosen last.

    The place is one in the configuration and not among the candidates, so that the neighbour of a worker that
    is down does not get its share on top of its own. Of several processes each begins one worker further on.
    """

    last: int = field(factory=lambda: own_place() - 1)


def select(roster: Roster, but: Collection[Worker] = (), avoid: Iterable[str] = ()) -> Candidates | None:
    """The members that are none of `but`; not those at a URL of `avoid`, if there are others. None without any."""
    if roster.shares.due:
        roster.grow()
    mask = roster.mask
    for worker in but:
        if roster.has(worker):
            mask &= ~(1 << worker.index)
    preferred = mask
    for url in avoid:
        there = roster.find(url)
        if there is not None:
            preferred &= ~(1 << there.index)
    mask = preferred or mask
    if mask != roster.mask:
        return Candidates(roster, mask) if mask else None
    if roster.everyone is None and mask:
        roster.everyone = Candidates(roster, mask)
    return roster.everyone
