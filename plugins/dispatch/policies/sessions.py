"""Which worker has which conversation: those that say who they are, and those that are known by their beginning."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final

from attrs import define, field

from plugins.dispatch.worker import Worker

SESSION_BLOCKS: Final = 4096
"""Blocks that one session is known by."""

_BEYOND_HASHES: Final = 1 << 64


@define(eq=False)
class Session:
    """A conversation on a worker; `blocks` are those by which it is known, the last used at the end."""

    worker: Worker
    blocks: OrderedDict[int, None] | None = None


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

    def named(self, identity: str) -> Session | None:
        """The session of an identity."""
        return self._touch(hash(identity))

    def name(self, identity: str, worker: Worker) -> None:
        """Remember where an identity is."""
        self._keep(hash(identity), Session(worker))

    def like(self, blocks: Sequence[int], threshold: float) -> Session | None:
        """A session which begins with at least so much of a prompt as `threshold` says; it takes the prompt over."""
        for place in range(len(blocks) - 1, math.ceil(threshold * len(blocks)) - 2, -1):
            owner = self._owners.get(blocks[place])
            if owner is not None:
                session = self._touch(owner)
                if session is not None:
                    self._own(owner, session, blocks)
                    return session
        return None

    def begin(self, blocks: Sequence[int], worker: Worker) -> None:
        """Remember where a prompt is that is like no session's."""
        number = next(self._numbers)
        session = Session(worker, OrderedDict())
        self._keep(number, session)
        self._own(number, session, blocks)

    def evict(self, worker: Worker) -> None:
        """Forget the sessions of a worker that is gone."""
        for key in [key for key, session in self._sessions.items() if session.worker is worker]:
            self._forget(key)

    def _touch(self, key: int) -> Session | None:
        session = self._sessions.get(key)
        if session is not None:
            self._sessions.move_to_end(key)
        return session

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
        for block in blocks:
            mine[block] = None
            mine.move_to_end(block)
        self._owners.update(dict.fromkeys(blocks, key))
        while len(mine) > SESSION_BLOCKS:
            self._disown(key, (mine.popitem(last=False)[0],))
        while len(self._owners) > self.block_limit and len(self._sessions) > 1:
            self._forget(next(iter(self._sessions)))

    def _forget(self, key: int) -> None:
        self._disown(key, self._sessions.pop(key).blocks or ())

    def _disown(self, key: int, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self._owners.get(block) == key:
                del self._owners[block]
