"""Holds back what has come of an event until all of it has."""

from typing import Final

from plugins.slots import WorkerRejection
from plugins.sse.events import boundary

HELD_LIMIT: Final = 16 * 1024 * 1024
"""Bytes; no event of a model's answer is larger, and one that is never ends."""

WHOLE: Final = (b"\n\n", b"\r\n\r\n")
"""How a chunk ends that is whole events, if nothing is held from before; then `take_whole` need not be called."""


def take_whole(held: bytearray, chunk: bytes) -> bytes:
    """Add a chunk to what is held, and take out the bytes up to the end of the last whole event, perhaps none.

    Raises:
        WorkerRejection: 502, an event grew beyond `HELD_LIMIT`.
    """
    known = len(held)
    held += chunk
    end = boundary(held, known)
    if not end and len(held) > HELD_LIMIT:
        raise WorkerRejection(502, "an event of the stream is too large", "worker_error")
    whole = bytes(held[:end])
    del held[:end]
    return whole
