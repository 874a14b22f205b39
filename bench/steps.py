"""The parts of which the steps of `bench chain` are made: exchanges, stand-ins for dispatch, a source of chunks."""

from collections.abc import Callable, MutableMapping
from time import monotonic
from typing import Any, Final

from attrs import frozen

from bench.bodies import ONE, PATH, make_answer, make_event, make_request
from kernel import Assembly, BytesReply, CallNext, Exchange, Reply, Runtime
from plugins import STANDARD, parse_document
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import MODEL, PAYLOAD, SERVED, STREAM, TIMING, Payload, Served

BODY: Final = make_request(ONE, 500, stream=False)
ANSWER: Final = make_answer()
EVENT: Final = make_event()
SCOPE: Final[dict[str, Any]] = {
    "type": "http",
    "method": "POST",
    "path": PATH,
    "root_path": "",
    "client": ("127.0.0.1", 1),
    "state": {},
    "headers": [
        (b"host", b"127.0.0.1:8000"),
        (b"user-agent", b"bench"),
        (b"accept", b"*/*"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(BODY)),
    ],
}


@frozen
class PassThrough:
    """A plugin that does nothing."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Call on."""
        return await call_next(exchange)


@frozen(eq=False)
class Answerer:
    """Stands in for dispatch: answers at once, and leaves what dispatch leaves."""

    reply: Callable[[], Reply]

    async def __call__(self, exchange: Exchange, _call_next: CallNext) -> Reply:
        """Answer."""
        exchange[SERVED] = Served(ONE, "openai", ["http://127.0.0.1:1"])
        timing = exchange.get(TIMING)
        if timing is not None:
            timing.dispatched = timing.answered = monotonic()
        return self.reply()


class Serving(Runtime):
    """A runtime with an assembly that was made elsewhere."""

    def __init__(self, assembly: Assembly) -> None:
        super().__init__(STANDARD, lambda: parse_document("", "bench"))
        self._assembly = assembly

    @property
    def serving(self) -> Assembly:
        """The assembly."""
        return self._assembly


class Chunks:
    """A source of `count` chunks that are all there."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __aiter__(self) -> "Chunks":
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return EVENT


async def receive() -> MutableMapping[str, Any]:
    """Give the whole body, as often as it is asked for."""
    return {"type": "http.request", "body": BODY, "more_body": False}


async def send(_message: MutableMapping[str, Any]) -> None:
    """Take a message of the answer."""


def new_exchange() -> Exchange:
    """An exchange whose body has not been read."""
    return Exchange(CHAT_COMPLETIONS, SCOPE, receive)


def filled_exchange() -> Exchange:
    """An exchange with what plugins leave that stand further out."""
    exchange = new_exchange()
    exchange[PAYLOAD] = Payload(BODY, {"model": ONE, "messages": [], "max_tokens": 64, "stream": False})
    exchange[MODEL], exchange[STREAM] = ONE, False
    return exchange


def answer() -> Reply:
    """A whole answer."""
    return BytesReply(ANSWER, headers=[(b"content-type", b"application/json")])
