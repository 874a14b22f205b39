"""The promise of `request_timing`: each latency is observed once, of requests that reached a worker alone."""

from time import monotonic

import pytest
from attrs import frozen

from kernel import BytesReply, CallNext, Exchange, Rejection, Reply
from kernel.testing import build_exchange, read_reply, run_chain
from plugins.endpoints import MODELS
from plugins.metrics import KERNEL_OVERHEAD
from plugins.request_timing.plugin import RequestTiming
from plugins.slots import BODY_SECONDS, SERVED, TIMING, Served
from plugins.sse_guard import SseGuard
from tests.plugins.support import CHAT_STREAM, EVENTS, Worker, counting, left_in_stream, parsed, serve, stream

pytestmark = pytest.mark.anyio

SERIES = " chat_completions m"
WAITED: dict[str, float] = {"queue_latency_seconds_count": 1, f"kernel_queue_wait_seconds_count{SERIES}": 1}
ANSWERED = WAITED | {f"kernel_overhead_seconds_count{SERIES}": 1}
FIRST = f"kernel_time_to_first_token_seconds_count{SERIES}"
LATER = f"kernel_inter_token_seconds_count{SERIES}"


async def test_answer_is_observed_once() -> None:
    """A whole answer has one wait and one overhead, and no tokens."""
    with counting() as changes:
        await serve(parsed(), RequestTiming(), Worker(BytesReply(b"{}")))

    assert changes == ANSWERED


async def test_stations_are_stamped_in_order() -> None:
    """After the last byte the slot has all of a request's stations."""
    for reply in (BytesReply(b"{}"), stream(CHAT_STREAM)):
        exchange = parsed()
        await serve(exchange, RequestTiming(), Worker(reply))

        timing = exchange[TIMING]
        assert timing.arrived == exchange.arrived
        assert timing.dispatched is not None
        assert timing.answered is not None
        assert timing.finished is not None
        assert timing.arrived <= timing.dispatched <= timing.answered <= timing.finished


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_chunks_are_observed_once_each(count: int) -> None:
    """A stream has one first chunk, and the others are later ones."""
    with counting() as changes:
        await serve(parsed(), RequestTiming(), Worker(stream(*EVENTS[:count])))

    assert changes == ANSWERED | {FIRST: 1} | ({LATER: count - 1} if count > 1 else {})


async def test_bytes_that_are_held_back_are_no_chunk() -> None:
    """A chunk that a plugin further in keeps until its event is whole is not observed as if it went out."""
    parts = [CHAT_STREAM[i : i + 1] for i in range(len(CHAT_STREAM))]

    with counting() as changes:
        await serve(parsed(), RequestTiming(), SseGuard(), Worker(stream(*parts)))

    assert changes == ANSWERED | {FIRST: 1, LATER: len(EVENTS) - 1}


async def test_stream_whose_client_left_keeps_what_was_observed() -> None:
    """Until the hang-up chunks count; the stream was not finished."""
    exchange = parsed()

    with counting() as changes:
        await serve(exchange, RequestTiming(), Worker(left_in_stream(exchange, *EVENTS[:3])))

    assert changes == ANSWERED | {FIRST: 1, LATER: 2}
    assert exchange[TIMING].finished is None


async def test_failure_after_dispatch_has_waited() -> None:
    """A request that a worker declined has waited, and nothing else is known of it."""
    with counting() as changes, pytest.raises(Rejection):
        await serve(parsed(), RequestTiming(), Worker(Rejection(404, "no")))

    assert changes == WAITED


async def test_request_that_reached_no_worker_is_not_observed() -> None:
    """What is declined before dispatch would only make the latencies look better."""
    with counting() as changes, pytest.raises(Rejection):
        await serve(parsed(), RequestTiming(), Worker(Rejection(404, "no"), served=False))

    assert changes == {}


async def test_request_that_was_sent_to_no_worker_is_not_observed() -> None:
    """A model of which no worker is ready is known, and still nothing was dispatched."""

    @frozen
    class Undispatched:
        async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
            exchange[SERVED] = Served("m", "openai", [])
            raise Rejection(503, "no worker is ready")

    with counting() as changes, pytest.raises(Rejection):
        await serve(parsed(), RequestTiming(), Undispatched())

    assert changes == {}


async def test_answer_without_a_worker_is_not_observed() -> None:
    """A plugin that answers by itself, with a stream too, has no latencies of a model."""
    with counting() as changes:
        await serve(parsed(), RequestTiming(), Worker(stream(CHAT_STREAM), served=False))

    assert changes == {}


async def test_other_endpoints_are_not_observed() -> None:
    """A list of models waits for nobody."""
    exchange = build_exchange(MODELS)

    with counting() as changes:
        await serve(exchange, RequestTiming(), Worker(BytesReply(b"{}")))

    assert changes == {}
    assert TIMING not in exchange


async def test_overhead_is_what_neither_client_nor_worker_took() -> None:
    """The time in which the client sent its body, and the worker's until its first bytes, are not the kernel's."""

    @frozen
    class Dispatched:
        async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
            timing = exchange[TIMING]
            exchange[SERVED] = Served("overhead", "openai", [])
            timing.arrived -= 100
            timing.dispatched = timing.arrived + 60
            timing.answered = monotonic()
            return BytesReply(b"{}")

    exchange = parsed()
    exchange[BODY_SECONDS] = 50.0
    reply = await run_chain([RequestTiming(), Dispatched()], exchange)
    await read_reply(reply, exchange)

    overhead = KERNEL_OVERHEAD.labels("chat_completions", "overhead").collect()
    (total,) = [sample.value for metric in overhead for sample in metric.samples if sample.name.endswith("_sum")]
    assert int(total) == 10
