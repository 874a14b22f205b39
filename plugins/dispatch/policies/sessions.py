"""Which worker has which conversation: those that say who they are, and those that are known by their beginning."""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, repeat
from typing import Final

from attrs import define, field

from plugins.dispatch.worker import Worker

SESSION_BLOCKS: Final = 4096
"""Blocks that one session is known by."""

_BEYOND_HASHES: Final = 1 << 64


@define(eq=False)
class Session:
    """A conversation on a worker; `blocks` are those by which it is known, the last used at the end.

    `since` is when it was placed there, in nanoseconds, if that is told between processes.
    """

    worker: Worker
    blocks: dict[int, int] | None = None
    since: int = 0

    def place(self, worker: Worker, since: int) -> None:
        """Move it where another process placed it, unless it was placed later here."""
        if since >= self.since:
            self.worker, self.since = worker, since


@define(eq=False)
class Sessions:
    """The conversations that were seen last, `limit` of them with `block_limit` blocks in all.

    An identity is kept as its hash, however long it is. Two that are equal by chance share a worker. A block
    belongs to the session that had it last, so that whatever is forgotten first owns nothing that is in use.
    """

    limit: int
    block_limit: int
    _sessions: OrderedDict[int, Session] = field(factory=OrderedDict, init=False)
    _owners: dict[int, int] = field(factory=dict, init=False)
    _numbers: Iterator[int] = field(factory=lambda: count(_BEYOND_HASHES), init=False)

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def blocks(self) -> int:
        """How many blocks are known."""
        return len(self._owners)

    def named(self, number: int) -> Session | None:
        """The session of an identity, by its hash."""
        session = self._sessions.get(number)
        if session is not None:
            self._sessions.move_to_end(number)
        return session

    def name(self, number: int, worker: Worker) -> Session:
        """Remember where an identity is."""
        session = Session(worker)
        self._keep(number, session)
        return session

    def like(self, blocks: Sequence[int], threshold: float) -> tuple[Session | None, int]:
        """A session which begins with at least so much of a prompt as `threshold` says; it takes the prompt over.

        And how many of the prompt's blocks it had before.
        """
        for place in range(len(blocks) - 1, math.ceil(threshold * len(blocks)) - 2, -1):
            owner = self._owners.get(blocks[place])
            if owner is not None:
                session = self.named(owner)
                if session is not None:
                    self._own(owner, session, blocks)
                    return session, place + 1
        return None, 0

    def continued(self, blocks: Sequence[int]) -> Session | None:
        """The session that has the first of some blocks, if there is one; it takes the others over."""
        owner = self._owners.get(blocks[0])
        session = None if owner is None else self.named(owner)
        if owner is not None and session is not None:
            self._own(owner, session, blocks)
        return session

    def begin(self, blocks: Sequence[int], worker: Worker) -> Session:
        """Remember where a prompt is that is like no session's."""
        number = next(self._numbers)
        session = Session(worker, {})
        self._keep(number, session)
        self._own(number, session, blocks)
        return session

    def evict(self, worker: Worker) -> None:
        """Forget the sessions of a worker that is gone."""
        for key in [key for key, session in self._sessions.items() if session.worker is worker]:
            self._forget(key)

    def _keep(self, key: int, session: Session) -> None:
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        if len(self._sessions) > self.limit:
            self._forget(next(iter(self._sessions)))

    def _own(self, key: int, session: Session, blocks: Sequence[int]) -> None:
        """Give a prompt to a session, which keeps what it had: several that are alike may go on side by side."""
        mine = session.blocks
        if mine is None:
            return
        used = dict.fromkeys(blocks, key)
        if mine:
            deque(map(mine.pop, used, repeat(None)), maxlen=0)  # so that they come in at the end
        mine.update(used)
        self._owners.update(used)
        if len(mine) > SESSION_BLOCKS:
            old = [*islice(mine, len(mine) - SESSION_BLOCKS)]
            deque(map(mine.pop, old), maxlen=0)
            self._disown(key, old)
        while len(self._owners) > self.block_limit and len(self._sessions) > 1:
            self._forget(next(iter(self._sessions)))

    def _forget(self, key: int) -> None:
        self._disown(key, self._sessions.pop(key).blocks or ())

    def _disown(self, key: int, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self._owners.get(block) == key:
                del self._owners[block]
