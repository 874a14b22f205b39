"""The meeting of the two halves of a request that are at two workers at the same time."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field

from plugins.dispatch.embedded.stub.handoffs import Key


class TakenError(Exception):
    """This half of a pair is here already."""


@define(eq=False)
class Pair:
    """One meeting: the half that holds the blocks, the one that joins it, and what is given to the latter."""

    prompt: tuple[int, ...] | None = None
    joining: bool = False
    joined: asyncio.Event = field(factory=asyncio.Event)
    given: "asyncio.Future[object]" = field(factory=lambda: asyncio.get_running_loop().create_future())

    def give(self, value: object) -> bool:
        """Give something to the other half; say whether it is there to take it."""
        if not self.given.done():
            self.given.set_result(value)
        return self.joining


@define(eq=False)
class Pairing:
    """Brings halves together by a key that is compared exactly; whichever half is first waits."""

    notify: Callable[[], None]
    _pairs: dict[Key, Pair] = field(factory=dict, init=False)

    @property
    def waiting(self) -> int:
        """How many pairs are here, whole or half."""
        return len(self._pairs)

    @contextmanager
    def hold(self, key: Key, prompt: tuple[int, ...]) -> Iterator[Pair]:
        """Be the half that has the blocks; whoever has joined stays where it is when this one goes.

        Raises `TakenError` if there is one already.
        """
        pair = self._pairs.setdefault(key, Pair())
        if pair.prompt is not None:
            raise TakenError(key)
        pair.prompt = prompt
        self.notify()
        try:
            yield pair
        finally:
            pair.prompt = None
            if pair.given.done() and self._pairs.get(key) is pair:
                del self._pairs[key]  # what was given is its taker's; the key is free again
            self._clear(key, pair)

    async def join(self, key: Key) -> object:
        """Be the other half; gives what the first one has given. Raises `TakenError` if there is one already."""
        pair = self._pairs.setdefault(key, Pair())
        if pair.joining:
            raise TakenError(key)
        pair.joining = True
        pair.joined.set()
        self.notify()
        try:
            return await asyncio.shield(pair.given)
        finally:
            pair.joining = False
            pair.joined.clear()
            self._clear(key, pair)

    def _clear(self, key: Key, pair: Pair) -> None:
        if pair.prompt is None and not pair.joining and self._pairs.get(key) is pair:
            del self._pairs[key]
        self.notify()
