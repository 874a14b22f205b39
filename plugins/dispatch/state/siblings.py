"""Tells the other processes on a port what this one has on workers and chose, and hears the same of them.

Nothing waits for another process: each writes into its own row of the board, and reads the others' rows from time to
time.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from attrs import define, field

from plugins.board import Board, Record, Reel, Ring, Slots, load_bytes, loads_in
from plugins.dispatch.worker import Worker

TICK_SECONDS: Final = 0.02
"""How long what other processes have on workers may be out of date."""

_TICK_FOR_EACH: Final = 0.000_05
"""And longer by that for each worker, so that a thousand of them cost little."""

Lend: TypeAlias = Callable[[Worker, int, int], None]
Hear: TypeAlias = Callable[[Worker, Record], None]


@define(eq=False)
class Entry:
    """A worker of a pool. `load` and `work` are this process's; those that were `lent` are on it from the others.

    `lend` hears by how much the others' have changed, and `hear`, if anybody, what they chose it for.
    """

    key: int
    worker: Worker
    lend: Lend
    hear: Hear | None = None
    load: int = 0
    work: int = 0
    lent_load: int = 0
    lent_work: int = 0
    slot: int | None = None

    def borrow(self, load: int, work: int) -> None:
        """Take note of what all others together have on the worker."""
        more = load - self.lent_load, work - self.lent_work
        if more != (0, 0):
            self.lent_load, self.lent_work = load, work
            self.lend(self.worker, *more)


@define(eq=False)
class Siblings:
    """Of the process at `place`. Runs in the event loop in which the first worker came, until the last one goes.

    `caught_up` is set while all that was chosen before is known.
    """

    board: Board
    place: int
    caught_up: asyncio.Event = field(factory=asyncio.Event, init=False)
    _slots: Slots = field(init=False)
    _ring: Ring = field(init=False)
    _loads: list[memoryview] = field(init=False)
    _reels: list[Reel] = field(init=False)
    _copies: list[bytes] = field(init=False)
    _entries: dict[int, list[Entry]] = field(factory=dict, init=False)
    _new: set[Entry] = field(factory=set, init=False)
    _replays: list[Reel] = field(factory=list, init=False)
    _stale: bool = field(default=False, init=False)
    _lent: set[int] = field(factory=set, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        loads, ring = self.board.rows[self.place]
        self._slots, self._ring = Slots(loads), Ring(ring)
        others = [row for place, row in enumerate(self.board.rows) if place != self.place]
        self._loads = [loads for loads, _ in others]
        self._reels = [Reel(ring) for _, ring in others]
        self._copies = [b""] * len(others)
        self.caught_up.set()

    def enter(self, entry: Entry, *, first: bool) -> None:
        """Begin to tell of a worker, and to hear of it; of the `first` of a pool also what was chosen before."""
        if first and entry.hear is not None:
            self._replays = [Reel(ring) for _, ring in self.board.rows]
            self.caught_up.clear()
        if self._replays:
            self._new.add(entry)
        entry.slot = self._slots.take(entry.key)
        self._entries.setdefault(entry.key, []).append(entry)
        self._stale = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def leave(self, entry: Entry) -> None:
        """Be done with a worker; what is still on it is told no more."""
        alike = self._entries[entry.key]
        alike.remove(entry)
        self._new.discard(entry)
        if not alike:
            del self._entries[entry.key]
        if entry.slot is not None:
            self._slots.give_back(entry.slot)
            entry.slot = None
        if not self._entries and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.caught_up.set()  # there is nobody left to wait for it

    def put(self, entry: Entry) -> None:
        """Tell what this process has on a worker."""
        if entry.slot is not None:
            self._slots.put(entry.slot, entry.load, entry.work)

    def tell(self, entry: Entry, kind: int, numbers: Sequence[int]) -> int:
        """Tell what this process chose a worker for, and return when that was, by all processes' clock."""
        return self._ring.append(kind, entry.key, numbers)

    def hear(self) -> None:
        """Hand over what the others chose since the last time."""
        for reel in self._reels:
            if reel.behind:
                for record in reel.read():
                    for entry in self._entries.get(record.key, ()):
                        if entry.hear is not None:
                            entry.hear(entry.worker, record)

    def _replay(self) -> None:
        """Tell one who is new what is left of one process's choices, of an earlier one at this place as well."""
        for record in self._replays.pop().read():
            for entry in self._entries.get(record.key, ()):
                if entry in self._new and entry.hear is not None:
                    entry.hear(entry.worker, record)
        if not self._replays:
            self._new.clear()
            self.caught_up.set()

    def borrow(self) -> None:
        """Take over what the others have on workers now."""
        for place, words in enumerate(self._loads):
            copy = load_bytes(words)
            if copy != self._copies[place]:
                self._copies[place], self._stale = copy, True
        if not self._stale:
            return
        self._stale = False
        sums: dict[int, tuple[int, int]] = {}
        for copy in self._copies:
            for key, load, work in loads_in(copy):
                before = sums.get(key, (0, 0))
                sums[key] = before[0] + load, before[1] + work
        for key in self._lent | sums.keys():
            for entry in self._entries.get(key, ()):
                entry.borrow(*sums.get(key, (0, 0)))
        self._lent = {*sums}

    def _tick(self) -> None:
        seconds = TICK_SECONDS + len(self._entries) * _TICK_FOR_EACH
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)
        self.borrow()
        self.hear()
        if self._replays:  # one at a time: it may take some milliseconds
            self._replay()
