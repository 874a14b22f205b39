"""The mock worker answers as a worker does, and the load generator takes no other answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.bodies import (
    ANSWER_BYTES,
    ONE,
    STATE,
    TWO,
    make_answer,
    make_context_answer,
    make_event,
    make_request,
    make_stream,
)
from bench.load import BenchError, Load
from bench.processes import Cores, free_port, running, wait_until_ready

pytestmark = pytest.mark.anyio

TOKENS = 3
SECONDS = 30.0
PLAIN = make_request(ONE, 500, stream=False)
STREAMED = make_request(ONE, 500, stream=True)


@asynccontextmanager
async def worker(**options: object) -> AsyncIterator[int]:
    """The port of a mock worker in a process of its own."""
    port = free_port()
    arguments = ["bench.worker", f"--port={port}", *(f"--{name}={value}" for name, value in options.items())]
    with running(arguments, Cores.of_this_machine().others) as pid:
        await wait_until_ready(port, "the worker", pid, healthy=True)
        yield port


async def ask(port: int, body: bytes, answer: bytes, count: int = 7, *, first_bytes: bool = False) -> list[float]:
    """The seconds of each of `count` answers, over three connections."""
    load = Load(port, body, answer, first_bytes)
    try:
        await load.connect(3)
        return await load.run(count, SECONDS)
    finally:
        load.close()


async def test_each_request_is_answered_once() -> None:
    """As many answers are taken as were asked for, whole ones and streams, paced and not."""
    async with worker(tokens=TOKENS) as port, worker(tokens=TOKENS, delay=0.001) as paced:
        assert len(await ask(port, PLAIN, make_answer())) == 7
        assert len(await ask(port, STREAMED, make_stream(TOKENS), first_bytes=True)) == 7
        assert len(await ask(paced, STREAMED, make_stream(TOKENS), first_bytes=True)) == 7
        assert len(await ask(port, PLAIN, make_answer(), count=2)) == 2


async def test_a_large_request_is_accepted() -> None:
    """The body may come in many pieces."""
    async with worker() as port:
        assert len(await ask(port, make_request(ONE, 32 * 1024, stream=False), make_answer())) == 7


@pytest.mark.parametrize(
    "answer",
    [make_stream(TOKENS - 1), make_stream(TOKENS).removesuffix(b"\n"), make_event() * TOKENS, make_answer()],
)
async def test_another_stream_ends_the_run(answer: bytes) -> None:
    """A token less, a cut end, a missing terminator and a whole answer are no stream."""
    async with worker(tokens=TOKENS) as port:
        with pytest.raises(BenchError, match="not the worker's: status 200"):
            await ask(port, STREAMED, answer)


async def test_a_generation_request_needs_the_handoff() -> None:
    """A gateway that leaves the relay out is found out."""
    bare = make_request(TWO, 500, stream=False)
    context = bare[:-1] + b',"disaggregated_params":{"request_type":"context_only"}}'
    params = b'{"request_type":"generation_only","encoded_opaque_state":"' + STATE.encode() + b'"}'
    generation = bare[:-1] + b',"disaggregated_params":' + params + b"}"
    async with worker() as port:
        with pytest.raises(BenchError, match="status 400"):
            await ask(port, bare, make_answer())
        assert len(await ask(port, context, make_context_answer())) == 7
        assert len(await ask(port, generation, make_answer())) == 7


@pytest.mark.parametrize(
    ("said", "reason"),
    [(b"", "closed a connection"), (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "closed"), (b"?", "not HTTP")],
)
async def test_a_gateway_that_breaks_off_ends_the_run(said: bytes, reason: str) -> None:
    """A connection that is closed before its answer, in the middle of it, or that speaks something else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(PLAIN)
        writer.write(said)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        with pytest.raises(BenchError, match=reason):
            await ask(server.sockets[0].getsockname()[1], PLAIN, make_answer())


async def test_a_process_that_ends_at_once_is_told() -> None:
    """A gateway that cannot be started is no endless wait."""
    with (
        running(["bench.worker", "--port=none"], Cores.of_this_machine().others, quiet=True) as pid,
        pytest.raises(BenchError, match="the gateway did not start"),
    ):
        await wait_until_ready(free_port(), "the gateway", pid, healthy=True)


@pytest.mark.parametrize("size", [150, 500, 32 * 1024])
def test_a_request_has_exactly_its_size(size: int) -> None:
    """Sizes are those of bodies, to the byte."""
    assert len(make_request(ONE, size, stream=True)) == size


def test_a_request_cannot_be_too_small() -> None:
    """A body has to hold its fields."""
    with pytest.raises(ValueError, match="at least"):
        make_request(ONE, 10, stream=True)


def test_an_answer_has_the_size_that_is_told() -> None:
    """Whole answers are of one size."""
    assert len(make_answer()) == ANSWER_BYTES
