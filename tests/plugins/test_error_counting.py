"""How `error_envelope` counts the endings that are no answer, and what is in flight."""

import asyncio
from typing import Any

import pytest
from attrs import frozen

from kernel import CallNext, ClientGone, DataReply, Exchange, Reply
from kernel.testing import build_exchange, read_reply, run_chain
from plugins.encode_reply import EncodeReply
from plugins.endpoints import MODELS
from plugins.error_envelope import ErrorEnvelope
from tests.plugins.support import (
    CHAT_STREAM,
    EVENTS,
    Worker,
    counting,
    left_in_stream,
    parsed,
    read_metrics,
    serve,
    stream,
)

pytestmark = pytest.mark.anyio

IN_FLIGHT = "kernel_requests_in_flight chat_completions"


def ended(status: int, error: str) -> dict[str, float]:
    """What the kernel's own counters say of one request."""
    return {
        f"kernel_requests_total chat_completions m {status}": 1,
        f"kernel_errors_total chat_completions m {error}": 1,
    }


async def test_client_that_left_is_no_failure(logged: list[Any]) -> None:
    """Before the answer and in the stream: counted as 499, under none of the frontend's error counters."""
    with counting() as before, pytest.raises(ClientGone):
        await serve(parsed(), ErrorEnvelope(), Worker(ClientGone("left")))
    streamed = parsed()
    with counting() as within:
        await serve(streamed, ErrorEnvelope(), Worker(left_in_stream(streamed, EVENTS[0])))

    assert before == ended(499, "client_gone")
    assert within == ended(499, "client_gone")
    assert logged == []


async def test_stream_that_was_never_begun_is_counted() -> None:
    """A stream that nobody wrote, because its client had gone, counts as one whose client left."""
    exchange = parsed()
    with counting() as changes:
        await run_chain([ErrorEnvelope(), Worker(stream(CHAT_STREAM))], exchange)
        await exchange.release()

    assert changes == ended(499, "client_gone")


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelled_request_is_no_failure_of_the_server(streamed: bool, logged: list[Any]) -> None:
    """A cancellation passes through; it is neither a fault nor logged as one."""
    cancelled = asyncio.CancelledError()
    with counting() as changes, pytest.raises(asyncio.CancelledError):
        await serve(parsed(), ErrorEnvelope(), Worker(stream(EVENTS[0], cancelled) if streamed else cancelled))

    assert changes == ended(200 if streamed else 499, "cancelled")
    assert logged == []


async def test_requests_in_flight_are_given_back() -> None:
    """While a request runs it is in flight, and after its release it is not, however it ended."""
    seen: list[float] = []

    @frozen
    class Look:
        async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
            seen.append(read_metrics()[IN_FLIGHT])
            raise ValueError("x")

    before = read_metrics().get(IN_FLIGHT, 0)
    exchange = parsed()
    await read_reply(await run_chain([ErrorEnvelope(), Look()], exchange), exchange)

    assert seen == [before + 1]
    assert read_metrics()[IN_FLIGHT] == before


async def test_reply_that_cannot_be_encoded_is_a_fault_of_the_encoder(logged: list[Any]) -> None:
    """What fails on the way out takes the failure path too, and its plugin is named."""
    exchange = build_exchange(MODELS)

    with counting() as changes:
        reply = await run_chain([ErrorEnvelope(), EncodeReply(), Worker(DataReply(object()), served=False)], exchange)
        await read_reply(reply, exchange)

    assert reply.status == 500
    assert changes["internal_errors_total"] == 1
    assert changes["kernel_requests_total models other 500"] == 1
    assert [line["plugin"] for line in logged] == ["EncodeReply"]
