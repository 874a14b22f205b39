"""The promise of `trace_span`: exactly one span for each request, in the caller's trace, whatever its ending."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from kernel import BytesReply, ClientGone, Endpoint, Exchange, Rejection
from kernel.testing import run_chain
from plugins.endpoints import ENDPOINTS
from plugins.slots import TRACE, WorkerRejection
from plugins.sse_guard import SseGuard
from plugins.trace_span import TraceSpan
from tests.plugins.support import CHAT_STREAM, EVENTS, Worker, left_in_stream, parsed, serve, stream
from tests.plugins.tracing import Recording

pytestmark = pytest.mark.anyio

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"

Pairs = Sequence[tuple[str, str]]


async def end(plugin: TraceSpan, ending: Any, exchange: Exchange | None = None) -> Exchange:
    """Run one request to an ending; the exchange is released."""
    exchange = exchange or parsed()
    with suppress(ClientGone, Rejection, ValueError, asyncio.CancelledError):
        await serve(exchange, plugin, SseGuard(), Worker(ending))
    return exchange


@pytest.mark.parametrize(
    ("ending", "status", "code", "error"),
    [
        (BytesReply(b"{}"), 200, StatusCode.UNSET, None),
        (BytesReply(b"{}", 404), 404, StatusCode.UNSET, None),
        (BytesReply(b"{}", 503), 503, StatusCode.ERROR, None),
        (Rejection(404, "no"), None, StatusCode.UNSET, None),
        (Rejection(503, "no"), None, StatusCode.ERROR, "Rejection"),
        (ValueError("x"), None, StatusCode.ERROR, "ValueError"),
        (asyncio.CancelledError(), None, StatusCode.ERROR, "CancelledError"),
        (ClientGone("left"), 499, StatusCode.UNSET, None),
    ],
)
async def test_one_span_for_every_ending(
    traced: Recording, ending: Any, status: int | None, code: StatusCode, error: str | None
) -> None:
    """Each ending has one ended span that tells the status; what the client is to blame for is no error."""
    exchange = await end(traced.plugin, ending)

    span = traced.the_span()
    attributes = span.attributes or {}
    assert (span.name, span.kind) == ("disaggregated_request", SpanKind.SERVER)
    assert span.status.status_code is code
    assert attributes.get("http.response.status_code") == status
    assert attributes.get("error.type") == error
    assert attributes["http.route"] == "/v1/chat/completions"
    assert attributes["http.request.method"] == "POST"
    assert attributes["gen_ai.request.model"] == "m"
    assert attributes["kernel.request_id"] == exchange.id


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
async def test_one_span_on_every_route(traced: Recording, endpoint: Endpoint) -> None:
    """Whatever the API, and whatever the path below an endpoint that has all below it."""
    await end(traced.plugin, BytesReply(b"{}"), parsed(endpoint=endpoint))

    assert (traced.the_span().attributes or {})["http.route"] == endpoint.path


@pytest.mark.parametrize(
    ("chunks", "code", "error"),
    [
        ((CHAT_STREAM,), StatusCode.UNSET, None),
        ((EVENTS[0],), StatusCode.ERROR, "WorkerRejection"),
        ((EVENTS[0], WorkerRejection(504, "slow")), StatusCode.ERROR, "WorkerRejection"),
        ((EVENTS[0], ValueError("x")), StatusCode.ERROR, "ValueError"),
        ((EVENTS[0], asyncio.CancelledError()), StatusCode.ERROR, "CancelledError"),
    ],
)
async def test_one_span_for_every_stream(
    traced: Recording, chunks: tuple[Any, ...], code: StatusCode, error: str | None
) -> None:
    """A stream's span ends with the stream and tells how it ended."""
    await end(traced.plugin, stream(*chunks))

    span = traced.the_span()
    assert span.status.status_code is code
    assert (span.attributes or {}).get("error.type") == error
    assert (span.attributes or {})["http.response.status_code"] == 200


async def test_span_of_a_stream_is_open_until_its_last_byte(traced: Recording) -> None:
    """A stream that has not ended has no ended span; one that nobody writes has one all the same."""
    exchange = parsed()

    await run_chain([traced.plugin, Worker(stream(CHAT_STREAM))], exchange)
    assert traced.exporter.get_finished_spans() == ()
    await exchange.release()

    assert traced.the_span().status.status_code is StatusCode.UNSET


async def test_client_that_left_its_stream_is_no_error(traced: Recording) -> None:
    """A hang-up in mid-stream is status 499."""
    exchange = parsed()

    await end(traced.plugin, left_in_stream(exchange, EVENTS[0]), exchange)

    span = traced.the_span()
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["http.response.status_code"] == 499


async def test_only_faults_are_recorded_as_exceptions(traced: Recording) -> None:
    """A fault's text goes to the operator's collector; a rejection is no exception."""
    await end(traced.plugin, ValueError("of this fault"))
    await end(traced.plugin, Rejection(503, "no"))

    fault, rejection = traced.exporter.get_finished_spans()
    assert [(event.attributes or {})["exception.message"] for event in fault.events] == ["of this fault"]
    assert rejection.events == ()


async def test_provider_that_changes_is_followed(traced: Recording) -> None:
    """Spans go to the provider of the moment, whoever had them before."""
    other = Recording()
    await end(traced.plugin, BytesReply(b"{}"))

    traced.plugin._state.provider = other.provider
    await end(traced.plugin, BytesReply(b"{}"))

    traced.the_span()
    other.the_span()
    other.provider.shutdown()


async def test_without_a_provider_nothing_is_done() -> None:
    """Where nobody records, no span is made and workers get the caller's own headers."""
    exchange = await end(TraceSpan(), BytesReply(b"{}"), parsed(headers=[("traceparent", TRACEPARENT)]))

    assert TRACE not in exchange


def test_configuration_is_what_is_compared() -> None:
    """Two plugins with one configuration are equal, so that a reload carries the running one over."""
    assert TraceSpan("http://127.0.0.1:1/v1/traces") == TraceSpan("http://127.0.0.1:1/v1/traces")
    assert TraceSpan() != TraceSpan(service_name="other")
