"""What `request_timing` tells of the times of a request, out of what workers told and what it saw itself."""

from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from kernel import BytesReply, CallNext, DataReply, Exchange, Rejection, Reply
from kernel.testing import run_chain
from plugins.request_timing.plugin import RequestTiming
from plugins.request_timing.record import BUDGET, Account
from plugins.slots import PERFORMANCE, LegTimes, Performance, Timing
from tests.plugins.support import CHAT_STREAM, EVENTS, Worker, left_in_stream, parsed, serve, stream

pytestmark = pytest.mark.anyio

ASKS = [("X-TRTLLM-Return-Metrics", "1")]
TELLS = RequestTiming(return_perf_metrics=True)


def account_of(context: dict[str, str], generation: dict[str, str] | None = None, ahead: float = 0.0) -> Account:
    """A request that came at 100, was sent on at 101, said something at 103, and ended at 105."""
    legs = {"context": LegTimes("http://c", 101.0, context, ahead, "17")}
    if generation is not None:
        legs["generation"] = LegTimes("http://g", 102.0, generation, ahead)
    return Account("r-1", Timing(100.0, 101.0, 103.0), Performance(legs, None, 2**60), 105.0)


def test_the_phases_of_the_workers_get_their_names() -> None:
    """`server` becomes the worker's phase, and the kernel's own phase stands beside them."""
    told = {
        "server-timing": "server_queue;dur=1.5, server_ttft;dur=20, server_e2e;dur=30.25",
        "x-trtllm-start-end-time": "server-start;ts=1101.5, server-end;ts=1102",
        "x-trtllm-step-metrics": "server-step-3-forward;dur=1, server-step-4-gpu-sample;dur=2",
        "x-trtllm-ctx-chunk-metrics": "server-ctx-chunk-0-forward;dur=7",
    }
    headers = account_of(told, {"server-timing": "server_queue;dur=0"}, 1000.0).headers()
    assert headers == {
        "Server-Timing": "ctx_queue;dur=1.500000, ctx_ttft;dur=20.000000, ctx_e2e;dur=30.250000, "
        "gen_queue;dur=0.000000, disagg_queue;dur=1000.000000, disagg_ttft;dur=3000.000000",
        "X-TRTLLM-Start-End-Time": "ctx-start;ts=101.500000000, ctx-end;ts=102.000000000, "
        "disagg-start;ts=100.000000000, disagg-end;ts=105.000000000",
        "X-TRTLLM-Step-Metrics": "ctx-step-3-forward;dur=1.000000, ctx-step-4-gpu-sample;dur=2.000000",
        "X-TRTLLM-Ctx-Chunk-Metrics": "ctx-ctx-chunk-0-forward;dur=7.000000",
    }


def test_stations_are_rebuilt_from_durations() -> None:
    """When a worker began, and how long it took from there, in both shapes of the record."""
    told = {
        "server-timing": "server_queue;dur=500, server_ttft;dur=750",
        "x-trtllm-start-end-time": "server-start;ts=11.0, server-end;ts=12.0",
        "x-trtllm-step-metrics": "server-step-12-forward;dur=1, server-step-9-forward;dur=2",
    }
    account = account_of(told, {}, -90.0)
    stations = {
        "arrival_time": 101.0,
        "last_token_time": 102.0,
        "first_scheduled_time": 101.5,
        "first_token_time": 101.75,
    }
    steps = {"ctx-step-12-forward": 1.0, "ctx-step-9-forward": 2.0}
    assert account.line() == {
        "ctx_server": "http://c",
        "gen_server": "http://g",
        "disagg_server_arrival_time": 100.0,
        "disagg_ctx_dispatch_time": 101.0,
        "disagg_server_first_token_time": 103.0,
        "status": "complete",
        "ctx_perf_metrics": {
            "request_id": 17,
            "perf_metrics": {"timing_metrics": stations, "first_iter": 9, "last_iter": 12},
            "time_breakdown_metrics": {"step_metrics": steps},
        },
        "gen_perf_metrics": {"request_id": None, "perf_metrics": {"timing_metrics": {}}, "ctx_request_id": 17},
        "disagg_request_id": 2**60,
    }
    record = account.record()
    assert (record["schema_version"], record["request_id"], record["status"]) == (1, "r-1", "complete")
    assert record["disagg_request_id"] == 2**60
    assert record["phases"]["ctx"]["timing_metrics"] == stations
    assert record["phases"]["ctx"]["metrics_headers"]["X-TRTLLM-Start-End-Time"].startswith("ctx-start;ts=101.0000")
    assert record["phases"]["disagg"] == {
        "ctx_server": "http://c",
        "gen_server": "http://g",
        "timing_metrics": {
            "arrival_time": 100.0,
            "last_token_time": 105.0,
            "server_arrival_time": 100.0,
            "ctx_dispatch_time": 101.0,
            "server_first_token_time": 103.0,
        },
    }


@pytest.mark.parametrize(
    "told",
    [
        "server_queue;dur=-1",
        "server_queue;dur=nan, server_ttft;dur=inf, server_e2e;dur=1e999",
        "server_queue;dur=",
        "server_queue;dur=1;dur=2",
        "server_queue;desc=x",
        "server queue;dur=1",
        "server_queue;dur=1\r\nset-cookie: x=1",
        f"server_{'q' * 200};dur=1",
        ";dur=1",
        ",,,",
        "\x00",
        "queue\u00e9;dur=1",
    ],
)
def test_what_is_no_time_is_left_out(told: str) -> None:
    """Nothing of it reaches a header or a record, whatever a worker writes."""
    account = account_of({"server-timing": told, "x-trtllm-step-metrics": told})
    assert account.headers()["Server-Timing"] == "disagg_queue;dur=1000.000000, disagg_ttft;dur=3000.000000"
    assert "X-TRTLLM-Step-Metrics" not in account.headers()
    assert b"null" not in orjson.dumps(account.line())


def test_headers_that_are_too_large_are_cut_to_the_first_two() -> None:
    """They have 80 KiB in all; if the first two alone do not fit, there are none."""
    item = "server-step-1-forward;dur=1.000000"
    large = ", ".join([item] * (2 * BUDGET // len(item)))
    with capture_logs() as logs:
        headers = account_of({"x-trtllm-step-metrics": large}).headers()
    assert headers.keys() == {"Server-Timing", "X-TRTLLM-Start-End-Time"}
    assert [line["event"] for line in logs] == ["performance.headers_cut"]
    assert account_of({"server-timing": large}).headers() == {}


async def test_an_answer_that_no_worker_measured_tells_the_kernels_times() -> None:
    """Of an engine whose workers tell nothing, the kernel's own phase is left."""
    for reply in (BytesReply(b"{}"), DataReply({})):
        exchange = parsed(headers=ASKS)
        answer = await run_chain([TELLS, Worker(reply)], exchange)
        assert [name for name, _ in answer.headers] == [b"server-timing", b"x-trtllm-start-end-time"]
        assert exchange[PERFORMANCE].record is not None


@pytest.mark.parametrize("cut", [1, 7, len(CHAT_STREAM)])
async def test_the_event_is_in_the_last_message_of_a_stream(cut: int) -> None:
    """Behind everything, once."""
    parts = [CHAT_STREAM[i : i + cut] for i in range(0, len(CHAT_STREAM), cut)]
    written = await serve(parsed(headers=ASKS), TELLS, Worker(stream(*parts)))
    event = written.chunks[-1]
    assert written.body == CHAT_STREAM + event
    name, data = event.removesuffix(b"\n\n").split(b"\n")
    assert name == b"event: trtllm.perf_metrics"
    assert orjson.loads(data.removeprefix(b"data: ")).keys() == {"Server-Timing", "X-TRTLLM-Start-End-Time"}


async def test_a_stream_that_was_not_completed_has_no_record() -> None:
    """The client left, or the source broke: there is no end whose time could be told."""
    exchange = parsed(headers=ASKS)
    written = await serve(exchange, TELLS, Worker(left_in_stream(exchange, *EVENTS[:3])))
    assert b"perf_metrics" not in written.body
    assert exchange[PERFORMANCE].record is None
    exchange = parsed(headers=ASKS)
    written = await serve(exchange, TELLS, Worker(stream(EVENTS[0], OSError("broken"))))
    assert b"perf_metrics" not in written.body
    assert exchange[PERFORMANCE].record is None


async def test_a_request_that_failed_has_no_record() -> None:
    """Nor has an answer that is an error, or one without a worker."""

    class Declines:
        async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
            await call_next(exchange)
            return BytesReply(b"{}", 503)

    for plugins in ([Worker(BytesReply(b"{}"), served=False)], [Declines(), Worker(BytesReply(b"{}"))]):
        exchange = parsed(headers=ASKS)
        answer = await run_chain([TELLS, *plugins], exchange)
        assert answer.headers == []
        assert exchange[PERFORMANCE].record is None
    exchange = parsed(headers=ASKS)
    with pytest.raises(Rejection):
        await serve(exchange, TELLS, Worker(Rejection(404, "no")))
    assert exchange[PERFORMANCE].record is None


@pytest.mark.parametrize("value", ["0", "true", "", "1, 1", "11"])
async def test_a_client_asks_with_one_value(value: str) -> None:
    """Anything but `1` is not asking."""
    exchange = parsed(headers=[("x-trtllm-return-metrics", value)])
    answer: Any = await run_chain([TELLS, Worker(BytesReply(b"{}"))], exchange)
    assert answer.headers == []
    assert PERFORMANCE not in exchange
