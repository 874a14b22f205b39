"""Changes the events of a worker's stream, of which most pass as they came."""

import re
from collections.abc import Callable

from attrs import define, field

from kernel import Outcome
from plugins.sse import WHOLE, events, frames, take_whole

Edit = Callable[[bytes, bytes], bytes | None]
"""Takes the name and the data of an event; gives the data as it has to be, or None to take the event out."""


@define(eq=False)
class EventEditor:
    """Gives `edit` each whole event in which `concern` or the bytes `word` are found, wherever the stream was cut.

    An event that was changed is written anew, with its name and its data; all other bytes stay what they are.
    """

    _concern: re.Pattern[bytes]
    _edit: Edit
    _word: bytes | None = None
    _held: bytearray = field(factory=bytearray, init=False)

    def push(self, chunk: bytes) -> bytes:
        """Take bytes cut anywhere; returns those up to the end of the last whole event.

        Raises:
            WorkerRejection: 502, an event grew too large.
        """
        if self._held or not chunk.endswith(WHOLE):
            chunk = take_whole(self._held, chunk)
        return self._rewrite(chunk) if self._concerns(chunk) else chunk

    def close(self, _outcome: Outcome) -> bytes:
        """What is left of an event that was cut, unless it is of interest: then no one can say what is in it."""
        rest = bytes(self._held)
        self._held.clear()
        return b"" if self._concerns(rest) else rest

    def _concerns(self, data: bytes) -> bool:
        return (self._word is not None and self._word in data) or self._concern.search(data) is not None

    def _rewrite(self, chunk: bytes) -> bytes:
        parts = [self._rewrite_one(event) if self._concerns(event) else event for event in frames(chunk)]
        return b"".join(parts)

    def _rewrite_one(self, event: bytes) -> bytes:
        found = next(events(event), None)
        if found is None:
            return event
        name, data = found
        changed = self._edit(name, data)
        if changed is data:
            return event
        if changed is None:
            return b""
        return (b"event: " + name + b"\n" if name else b"") + b"data: " + changed + b"\n\n"
