"""The first events of a stream, up to the one that says something: until then it can still become an error."""

from typing import Final

from attrs import define, field

from plugins.dispatch.answers import check_event, check_first
from plugins.dispatch.client import MalformedFault, Response
from plugins.sse import boundary, events

_EVENTS: Final = 64
_BYTES: Final = 1024 * 1024


@define(eq=False)
class Opening:
    """What of a stream has come while nothing was said.

    A generation worker opens its stream before it has the KV cache: vLLM sends the role at once and learns after
    seconds that the context worker is gone.
    """

    _held: bytearray = field(factory=bytearray, init=False)
    _seen: int = field(default=0, init=False)
    _events: int = field(default=0, init=False)

    async def read(self, response: Response) -> bytes:
        """The bytes up to and with those that say something.

        Raises:
            WorkerRejection: the worker told of an error.
            Fault: the stream broke, or ended.
        """
        while True:
            chunk = await response.chunk()
            if not chunk:
                raise MalformedFault("the stream ended before it said anything")
            known = len(self._held)
            self._held += chunk
            if self._says_something(known, response):
                return bytes(self._held)

    def _says_something(self, known: int, response: Response) -> bool:
        end = boundary(self._held, known)
        if end:
            whole, self._seen = bytes(self._held[self._seen : end]), end
            for name, data in events(whole):
                self._events += 1
                if check_event(name, data, response):
                    return True
        return self._events > _EVENTS or len(self._held) > _BYTES


async def first_bytes(response: Response) -> bytes:
    """The first bytes of a stream with an event in them, unless it is an error that should have been a status.

    Raises:
        WorkerRejection: the worker told of an error.
        Fault: the stream broke, or ended.
    """
    first = await response.chunk()
    if not boundary(first):
        first = await _complete(response, first)
    check_first(response, first)
    return first


async def _complete(response: Response, first: bytes) -> bytes:
    held, known = bytearray(first), 0
    while not boundary(held, known) and len(held) < _BYTES:
        more, known = await response.chunk(), len(held)
        if not more:
            raise MalformedFault("the stream ended before its first event")
        held += more
    return bytes(held)
