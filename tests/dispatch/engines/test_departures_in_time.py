"""How soon everything is free after a client has left: within 100 ms by the loop's own clock, wherever it was.

The clock stands still from then on, so that nothing which waits for a later time ever goes on.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import orjson
import pytest
from attrs import define, field
from structlog.testing import capture_logs

from kernel import CallNext, ClientGone, Exchange, Reply, StreamReply
from kernel.testing import read_reply, run_chain
from plugins.access_log import AccessLog
from plugins.disconnect_watch import DisconnectWatch
from plugins.dispatch.engine import Engine, Handoff, Reading, Request
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.dispatch.worker import Role
from plugins.encode_reply import EncodeReply
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.slots import MODEL, PAYLOAD, STREAM, Payload
from tests.dispatch.engines.apis import SETUPS
from tests.dispatch.engines.pairs import CHAT, Pair, pair_of
from tests.dispatch.support import loads

pytestmark = pytest.mark.anyio

LIMIT_SECONDS = 0.1
PATIENCE_SECONDS = 30
"""Of a test, by the clock on the wall, which bounds nothing that is tested."""


@define(eq=False)
class Client:
    """Sends one chat, and hangs up when it is told to: 100 ms go by on the loop's clock, which then stands still."""

    stream: bool
    raw: bytes = field(init=False)
    exchange: Exchange = field(init=False)
    _sent: bool = field(init=False, default=False)
    _left: asyncio.Event = field(init=False, factory=asyncio.Event)

    def __attrs_post_init__(self) -> None:
        self.raw = orjson.dumps({**CHAT, "stream": self.stream})
        scope = {"type": "http", "method": "POST", "path": CHAT_COMPLETIONS.path, "headers": [], "query_string": b""}
        self.exchange = Exchange(CHAT_COMPLETIONS, scope, self._receive)

    async def ask(self, *plugins: Any) -> None:
        """Send the request, and read the answer to its end."""
        raw = await self.exchange.read(1 << 20)
        self.exchange[PAYLOAD] = Payload(raw, orjson.loads(raw))
        self.exchange[MODEL], self.exchange[STREAM] = "m", self.stream
        try:
            reply = await run_chain([AccessLog(), EncodeReply(), DisconnectWatch(), *plugins], self.exchange)
            await read_reply(reply, self.exchange)
        except ClientGone:
            pass
        finally:
            await self.exchange.release()

    def leave(self) -> None:
        """Hang up."""
        then = self.exchange.loop.time() + LIMIT_SECONDS
        self.exchange.loop.time = lambda: then  # type: ignore[method-assign]
        self._left.set()

    async def _receive(self) -> MutableMapping[str, Any]:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self.raw, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}


async def reach(holds: Callable[[], bool]) -> None:
    """Let the loop turn until something holds."""
    patience = monotonic() + PATIENCE_SECONDS
    while not holds():
        assert monotonic() < patience
        await asyncio.sleep(0)


def holding(pair: Pair) -> tuple[int, int, int]:
    """What runs on each worker, and the blocks of a KV cache that wait for somebody."""
    context, generation = (stub.state() for stub in pair.stubs)
    return context.running, generation.running, context.held_blocks + generation.held_blocks


@asynccontextmanager
async def stopping(client: Client, name: str, engine: Engine | None = None) -> AsyncIterator[Pair]:
    """A pair that the client leaves; both workers are then without work and hold nothing, before any time goes by."""
    usual, settings = SETUPS[name]
    loop = asyncio.get_running_loop()
    async with pair_of(engine or usual, **settings) as pair:
        with capture_logs() as lines:
            try:
                yield pair
                await reach(lambda: (holding(pair), loads(pair.dispatch)) == ((0, 0, 0), [0, 0]))
            finally:
                vars(loop).pop("time", None)
        for stub in pair.stubs:
            assert (stub.state().violations, stub.state().leaked_blocks) == ({}, 0)
    ends = [(line["status"], line["outcome"]) for line in lines if line["event"] == "request.finished"]
    assert ends == [(499, "client_gone")]


@pytest.mark.parametrize("stream", [False, True])
async def test_in_a_queue(stream: bool) -> None:
    """No worker hears of it."""
    client = Client(stream)
    waits = asyncio.Event()

    async def wait(_exchange: Exchange, _call_next: CallNext) -> Reply:
        waits.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with stopping(client, "nixl") as pair:
        task = asyncio.ensure_future(client.ask(wait, pair.dispatch))
        await waits.wait()
        client.leave()
        await reach(task.done)
        assert [stub.state().requests for stub in pair.stubs] == [0, 0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", SETUPS)
async def test_during_the_context_phase(name: str, stream: bool) -> None:
    """The context worker stops, and the generation worker where it was asked at once."""
    client = Client(stream)
    async with stopping(client, name) as pair:
        pair.context.add_fault("hang")
        task = asyncio.ensure_future(client.ask(pair.dispatch))
        await reach(lambda: pair.context.state().running == 1)
        client.leave()
        await reach(task.done)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("nixl", VllmEngine), ("trtllm", TrtllmEngine)])
async def test_between_the_legs(name: str, kind: Any, stream: bool) -> None:
    """What the context worker holds by then is fetched at once, for nobody."""
    client = Client(stream)
    leaver = weakref.proxy(client)  # engines' classes are remembered for good

    class Leaving(kind):  # type: ignore[misc]  # one of two, which tests know
        def read(self, role: Role, request: Request, answer: bytes, handoff: Handoff | None = None, /) -> Reading:
            if role is Role.CONTEXT and request.payload.raw == leaver.raw:
                leaver.leave()
            reading: Reading = super().read(role, request, answer, handoff)
            return reading

    async with stopping(client, name, Leaving()) as pair:
        task = asyncio.ensure_future(client.ask(pair.dispatch))
        await reach(task.done)
        await reach(lambda: pair.context.state().handoffs.fetched == 1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", SETUPS)
async def test_before_the_first_word(name: str, stream: bool) -> None:
    """The generation worker has the KV cache, and stops."""
    client = Client(stream)
    async with stopping(client, name) as pair:
        pair.generation.add_fault("slow", seconds=3600)
        task = asyncio.ensure_future(client.ask(pair.dispatch))
        await reach(lambda: holding(pair) == (0, 1, 0))
        client.leave()
        await reach(task.done)


@pytest.mark.parametrize("name", SETUPS)
async def test_in_mid_stream(name: str) -> None:
    """While the worker is silent."""
    client = Client(stream=True)
    begun = asyncio.Event()

    async def notice(exchange: Exchange, call_next: CallNext) -> Reply:
        reply = await call_next(exchange)
        assert isinstance(reply, StreamReply)
        reply.attach(step=note)
        return reply

    def note(chunk: bytes) -> bytes:
        begun.set()
        return chunk

    async with stopping(client, name) as pair:
        pair.generation.add_fault("stall", after=2)
        task = asyncio.ensure_future(client.ask(notice, pair.dispatch))
        await begun.wait()
        client.leave()
        await reach(task.done)
