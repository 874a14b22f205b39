"""10,000 requests of which a third hang up, over real sockets: nothing is left held."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from kernel import BytesReply, CallNext, Exchange, Outcome, Reply, StreamReply, build_app
from kernel.testing import stream_of
from tests.kernel.support import Client, Shelf, serve, spec_of, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

REQUESTS = 10_000
WORKERS = 50
KINDS = ("plain", "stream", "wait", "plain", "stream", "endless")
"""Every third request is one whose client leaves: before its answer, or in the middle of it."""


class Worker:
    """A terminal plugin that holds something for every request."""

    def __init__(self) -> None:
        self.held = 0
        self.seen = Counter[str]()
        self.outcomes = Counter[str]()

    async def __call__(self, exchange: Exchange, _call_next: CallNext) -> Reply:
        """Answer as the body asks."""
        self.held += 1
        exchange.resources.push(self.let_go)
        kind = (await exchange.read(100)).decode()
        self.seen[kind] += 1
        match kind:
            case "plain":
                return BytesReply(b"plain")
            case "wait":
                with exchange.interruptible():
                    exchange.watch()
                    await asyncio.Event().wait()
        reply = StreamReply(self.endless() if kind == "endless" else stream_of(b"a", b"b"))
        reply.attach(end=self.ended)
        return reply

    async def endless(self) -> AsyncIterator[bytes]:
        """One chunk, and then nothing for ever."""
        yield b"a"
        await asyncio.Event().wait()

    def let_go(self) -> None:
        """Give back."""
        self.held -= 1

    def ended(self, outcome: Outcome) -> None:
        """Count how a stream ended."""
        self.outcomes[outcome.name] += 1


async def ask(port: int, kinds: list[str]) -> None:
    """Send requests one after the other, on one connection as long as the client stays."""
    while kinds:
        async with Client.connect(port) as client:
            while kinds:
                kind = kinds.pop()
                client.post(body=kind.encode())
                match kind:
                    case "plain":
                        assert await client.read_sized() == (200, b"plain")
                    case "stream":
                        assert await client.read_head() == 200
                        await client.reader.readuntil(b"0\r\n\r\n")
                    case "endless":
                        assert await client.read_head() == 200
                        break
                    case _:
                        break


async def test_nothing_is_left_of_ten_thousand_requests(shelf: Shelf) -> None:
    """No exchange, no resource, no task; every stream heard one outcome."""
    worker = Worker()
    runtime = shelf.runtime(spec_of("worker", worker))
    async with serve(build_app(runtime), backlog=4096) as port:
        before = len(asyncio.all_tasks())
        kinds = [KINDS[number % len(KINDS)] for number in range(REQUESTS)]
        expected = Counter(kinds)
        await asyncio.gather(*(ask(port, kinds) for _ in range(WORKERS)))
        await until(lambda: not runtime.serving.exchanges)
        await until(lambda: len(asyncio.all_tasks()) <= before)
    assert worker.held == 0
    assert {kind: worker.seen[kind] for kind in ("plain", "stream", "endless")} == {
        kind: expected[kind] for kind in ("plain", "stream", "endless")
    }
    streams = worker.seen["stream"] + worker.seen["endless"]
    assert worker.outcomes.total() == streams
    assert worker.outcomes["completed"] == worker.seen["stream"]
    assert worker.outcomes["client_gone"] == worker.seen["endless"]
