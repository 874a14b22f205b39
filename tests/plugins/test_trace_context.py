"""How `trace_span` joins the trace of whoever calls, and lets workers join it."""

import asyncio
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from kernel import BytesReply, Exchange
from plugins.slots import TRACE
from plugins.trace_span import TraceSpan
from tests.plugins.support import Worker, parsed, serve
from tests.plugins.tracing import Recording

pytestmark = pytest.mark.anyio

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"

Pairs = Sequence[tuple[str, str]]


async def end(plugin: TraceSpan, exchange: Exchange | None = None) -> Exchange:
    """Run one request to its end."""
    exchange = exchange or parsed()
    await serve(exchange, plugin, Worker(BytesReply(b"{}")))
    return exchange


def told_by(exchange: Exchange) -> dict[str, str]:
    """The headers that workers get."""
    headers = exchange[TRACE]
    return dict(headers)


def is_sampled(told: dict[str, str]) -> bool:
    """Whether workers are told to record; the other bits of the flags say nothing of it."""
    return int(told["traceparent"][-2:], 16) & 1 == 1


@pytest.mark.parametrize(
    ("headers", "joined", "state"),
    [
        ([("traceparent", TRACEPARENT)], True, None),
        ([("Traceparent", TRACEPARENT), ("tracestate", "a=1"), ("tracestate", "b=2")], True, "a=1,b=2"),
        ([("traceparent", TRACEPARENT.replace("-01", "-00"))], None, None),
        ([], False, None),
        ([("tracestate", "a=1")], False, None),
        *[
            ([("traceparent", wrong)], False, None)
            for wrong in ("", "x", TRACEPARENT.upper(), TRACEPARENT + "-x", "ff" + TRACEPARENT[2:], "0" * 600, "\xe9")
        ],
        ([("traceparent", f"00-{'0' * 32}-{SPAN_ID}-01")], False, None),
    ],
)
async def test_callers_trace_is_joined(
    traced: Recording, headers: Pairs, joined: bool | None, state: str | None
) -> None:
    """A valid `traceparent` is the span's parent, and one that is not sampled is obeyed; a wrong one is no fault."""
    exchange = await end(traced.plugin, parsed(headers=headers))

    told = told_by(exchange)
    assert told.get("tracestate") == state
    version, trace_id, span_id, _ = told["traceparent"].split("-")
    assert is_sampled(told) is (joined is not None)
    if joined is None:
        assert traced.exporter.get_finished_spans() == ()
        assert trace_id == TRACE_ID
        return
    span = traced.the_span()
    assert span.context is not None
    assert version == "00"
    assert (int(trace_id, 16), int(span_id, 16)) == (span.context.trace_id, span.context.span_id)
    assert (trace_id == TRACE_ID) is joined
    assert (span.parent is not None and f"{span.parent.span_id:016x}" == SPAN_ID) is joined


async def test_request_that_is_not_sampled_tells_workers_so() -> None:
    """A request that the sampler leaves out makes no span, and workers are told to make none."""
    traced = Recording(ALWAYS_OFF)

    exchange = await end(traced.plugin)

    assert traced.exporter.get_finished_spans() == ()
    assert not is_sampled(told_by(exchange))
    traced.provider.shutdown()


async def test_span_round_the_kernel_is_the_parent(traced: Recording) -> None:
    """Inside an application that traces its own requests, the span is a child of the application's."""
    tracer = traced.provider.get_tracer("application")
    with tracer.start_as_current_span("outer") as outer:
        await end(traced.plugin, parsed(headers=[("traceparent", TRACEPARENT)]))

    inner, _ = traced.exporter.get_finished_spans()
    assert inner.parent == outer.get_span_context()


async def test_spans_are_not_current_in_other_requests(traced: Recording) -> None:
    """Requests that run at once have traces of their own."""
    await asyncio.gather(*(end(traced.plugin) for _ in range(3)))

    spans = traced.exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans if span.context is not None}) == 3
    assert all(span.parent is None for span in spans)
