"""One worker's stream of KV-cache events: it knows what it missed, and gets that again or starts anew."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, TypeAlias

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.dispatch.policies.kv_wire import Batch, Ledger, WireError, read_batch

Replay: TypeAlias = Callable[[int], AsyncGenerator[tuple[int, bytes], None]]
"""Gives all that a worker still has from a number on, as numbers and payloads; raises OSError if it cannot."""

_NUMBER_BYTES: Final = 8

log = get_logger()


def read_number(frame: bytes) -> int:
    """The number of a message.

    Raises:
        WireError: it is none.
    """
    if len(frame) != _NUMBER_BYTES:
        raise WireError("no number of a message")
    return int.from_bytes(frame, signed=True)


@define(eq=False)
class KvStream:
    """Enters messages into a ledger, each once and in order.

    What was missed is replayed where the worker can do that. If it cannot give everything, then nothing that is
    known of its blocks is worth anything, as what it dropped meanwhile would be looked for for ever: all is
    forgotten, and learned anew. `gaps` and `losses` count both; `garbage` counts messages that are none.
    """

    worker: str
    ledger: Ledger
    replay: Replay | None = None
    gaps: int = field(default=0, init=False)
    losses: int = field(default=0, init=False)
    garbage: int = field(default=0, init=False)
    _next: int = field(default=0, init=False)
    _time: float = field(default=0.0, init=False)
    _heard: bool = field(default=False, init=False)
    _suspicious: bool = field(default=False, init=False)
    _complained: set[str] = field(factory=set, init=False)

    async def begin(self) -> None:
        """Get what the worker sent before anybody listened, as far as it still has it."""
        await self._catch_up()

    def suspect(self) -> None:
        """Hear that the worker may have begun anew: a number of the past is then no repetition."""
        self._suspicious = True

    async def take(self, frames: list[bytes]) -> None:
        """Take in a message, whatever it is: topic, number, payload."""
        try:
            if len(frames) not in (2, 3):
                raise WireError("a message does not have three frames")
            number = read_number(frames[-2])
            if number < 0:
                raise WireError("a number below 0")
        except WireError as error:
            self._complain(str(error))
            return
        await self.receive(number, self._read(frames[-1]))

    async def receive(self, number: int, batch: Batch | None) -> None:
        """Take in a message that came in by itself; None if there is no more to it than its number."""
        if number < self._next and batch is not None and (batch.time > self._time or self._suspicious):
            self._lose("the worker counts from 0 again")
            self._next, self._time, self._heard = 0, 0.0, False
        self._suspicious = False
        if number > self._next and (self._heard or self.replay is not None):
            self.gaps += 1
            await self._catch_up()
            if number > self._next and self._heard:
                self._lose("messages were missed")
        if number >= self._next:
            self._enter(number, batch)

    async def _catch_up(self) -> None:
        """Enter what can be replayed."""
        if self.replay is None:
            return
        try:
            async with aclosing(self.replay(self._next)) as messages:
                async for number, payload in messages:
                    if number > self._next and self._heard:
                        self._lose("messages were missed, and are no longer kept")
                    if number >= self._next:
                        self._enter(number, self._read(payload))
        except (OSError, WireError) as error:
            self._complain(f"no replay: {error}")

    def _enter(self, number: int, batch: Batch | None) -> None:
        self._next, self._heard = number + 1, True
        if batch is None:
            self._lose("a message cannot be read")
            return
        self._time = batch.time
        bad = self.ledger.bad
        self.ledger.enter(batch)
        if self.ledger.bad != bad:
            self._complain("an event cannot be read")

    def _read(self, payload: bytes) -> Batch | None:
        try:
            return read_batch(payload)
        except WireError as error:
            self._complain(str(error))
            return None

    def _lose(self, reason: str) -> None:
        self.losses += 1
        self.ledger.forget()
        log.info("kv_events.forgotten", worker=self.worker, reason=reason)

    def _complain(self, reason: str) -> None:
        """Count garbage, and log each kind of it once."""
        self.garbage += 1
        kind = reason.partition(":")[0]
        if kind not in self._complained:
            self._complained.add(kind)
            log.warning("kv_events.garbage", worker=self.worker, reason=reason)
