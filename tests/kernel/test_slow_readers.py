"""Clients that do not read, over real sockets: the source waits for them, within bounds."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from attrs import define, field

from kernel import CallNext, Exchange, Outcome, Rejection, Reply, Runtime, StreamReply, build_app, race
from tests.kernel.support import Client, Shelf, serve, spec_of, until

pytestmark = pytest.mark.anyio

CHUNK = b"x" * 65536
COUNT = 1024
BOUND = 24 * 1024 * 1024
"""Far above what sockets of loopback buffer, far below the 64 MiB of the whole answer."""


@pytest.fixture(autouse=True)
def watch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to watch without delay."""
    monkeypatch.setattr(race, "WATCH_DELAY_SECONDS", 0)


@define
class Fountain:
    """A source that notes how much was taken from it."""

    taken: int = 0
    outcomes: list[Outcome] = field(factory=list)

    async def __call__(self, exchange: Exchange, _call_next: CallNext) -> Reply:
        """Stream it all."""
        await exchange.read(0)
        reply = StreamReply(self.source())
        reply.attach(close=lambda outcome: outcome.name.encode(), end=self.outcomes.append)
        return reply

    async def source(self) -> AsyncIterator[bytes]:
        """Chunks, as long as they are asked for."""
        for _ in range(COUNT):
            await asyncio.sleep(0)
            self.taken += len(CHUNK)
            yield CHUNK

    async def stalled(self) -> None:
        """Return when nothing more is taken."""
        before, still = -1, 0
        while still < 50:
            still = still + 1 if before == self.taken else 0
            before = self.taken
            await asyncio.sleep(0.002)


def runtime_of(shelf: Shelf, fountain: Fountain) -> Runtime:
    """A runtime of this fountain."""
    return shelf.runtime(spec_of("fountain", fountain))


async def read_chunks(client: Client) -> tuple[int, bytes]:
    """Read a chunked body to its end; returns its size and its last chunk."""
    size, chunk = 0, b""
    while length := int(await client.reader.readline(), 16):
        chunk = (await client.reader.readexactly(length + 2))[:-2]
        size += length
    return size, chunk


async def test_a_client_that_reads_nothing_stops_the_source(shelf: Shelf) -> None:
    """And gets everything when it reads again."""
    fountain = Fountain()
    async with serve(build_app(runtime_of(shelf, fountain))) as port, Client.connect(port) as client:
        client.post()
        await fountain.stalled()
        assert 0 < fountain.taken < BOUND
        await client.read_head()
        size, last = await read_chunks(client)
        assert (size, last) == (COUNT * len(CHUNK) + len(last), b"completed")
    assert [outcome.name for outcome in fountain.outcomes] == ["completed"]


async def test_a_client_that_reads_nothing_and_leaves_is_gone(shelf: Shelf) -> None:
    """The source is not asked for the rest."""
    fountain = Fountain()
    runtime = runtime_of(shelf, fountain)
    async with serve(build_app(runtime)) as port:
        async with Client.connect(port) as client:
            client.post()
            await fountain.stalled()
        await until(lambda: not runtime.serving.exchanges)
    assert [outcome.name for outcome in fountain.outcomes] == ["client_gone"]
    assert fountain.taken < BOUND


async def test_an_interruption_reaches_a_stream_that_waits_for_its_client(shelf: Shelf) -> None:
    """The source is asked for nothing more; the client reads what was on its way, and the closing bytes."""
    fountain = Fountain()
    runtime = runtime_of(shelf, fountain)
    async with serve(build_app(runtime)) as port, Client.connect(port) as client:
        client.post()
        await fountain.stalled()
        runtime.interrupt(Rejection(503, "shutting down"))
        taken = fountain.taken
        await client.read_head()
        _, last = await read_chunks(client)
        assert last == b"failed"
        assert fountain.taken == taken
        await until(lambda: not runtime.serving.exchanges)
    assert [outcome.name for outcome in fountain.outcomes] == ["failed"]


async def test_an_interrupted_stream_ends_with_a_client_that_leaves_without_reading(shelf: Shelf) -> None:
    """Its closing bytes wait for nobody then."""
    fountain = Fountain()
    runtime = runtime_of(shelf, fountain)
    async with serve(build_app(runtime)) as port:
        async with Client.connect(port) as client:
            client.post()
            await fountain.stalled()
            runtime.interrupt(Rejection(503, "shutting down"))
        await until(lambda: not runtime.serving.exchanges)
    assert len(fountain.outcomes) == 1
