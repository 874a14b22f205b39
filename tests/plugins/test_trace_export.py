"""How spans of `trace_span` get out, and that nothing is missing where OpenTelemetry is."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from attrs import define, field
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kernel import BytesReply
from plugins.trace_span import TraceSpan
from tests.plugins.support import Worker, parsed, serve

ROOT = Path(__file__).parents[2]

NOTHING_INSTALLED = """
import asyncio, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())

from structlog.testing import capture_logs
from kernel import BytesReply
from kernel.testing import build_exchange, run_chain
from plugins.slots import TRACE
from plugins.trace_span import TraceSpan

async def main():
    plugin = TraceSpan("http://127.0.0.1:1/v1/traces")
    with capture_logs() as lines:
        await plugin.start()
    exchange = build_exchange(headers=[("traceparent", "x")])
    reply = await run_chain([plugin], exchange, BytesReply(b"{}"))
    await exchange.release()
    await plugin.stop()
    print(reply.status, TRACE in exchange, [(line["event"], line["install"]) for line in lines])

asyncio.run(main())
"""

SET_UP_LATE = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from kernel import BytesReply
from kernel.testing import build_exchange, run_chain
from plugins import trace_span

async def request(plugin, later=0.0):
    exchange = build_exchange()
    exchange.arrived += later
    await run_chain([plugin], exchange, BytesReply(b"{}"))
    await exchange.release()

async def main():
    plugin, exporter = trace_span.TraceSpan(), InMemorySpanExporter()
    await request(plugin)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    await request(plugin, trace_span.LOOK_AGAIN_SECONDS + 1)
    await request(plugin, trace_span.LOOK_AGAIN_SECONDS + 1)
    print([span.name for span in exporter.get_finished_spans()])

asyncio.run(main())
"""


def run_script(script: str) -> str:
    """What a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@define
class Collector:
    """An OTLP/HTTP endpoint on loopback, and what it was sent; `status` is its answer."""

    status: int = 200
    url: str = ""
    posts: list[tuple[str, bytes]] = field(factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one post."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        self.posts.append((head, await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % self.status)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector for the length of a block."""
    collector = Collector()
    server = await asyncio.start_server(collector.answer, "127.0.0.1", 0)
    async with server:
        collector.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/traces"
        yield collector


@pytest.mark.anyio
async def test_spans_reach_a_collector_at_the_latest_when_the_plugin_stops() -> None:
    """With an endpoint, spans go there as OTLP/HTTP protobuf under the configured service's name."""
    async with collecting() as collector:
        plugin = TraceSpan(collector.url, "the-service")
        await plugin.start()
        await serve(parsed(), plugin, Worker(BytesReply(b"{}")))
        await serve(parsed(), plugin, Worker(BytesReply(b"{}", 503)))
        await plugin.stop()

    ((head, body),) = collector.posts
    assert head.startswith("post /v1/traces ")
    assert "content-type: application/x-protobuf" in head
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert {item.key: item.value.string_value for item in resource.resource.attributes}["service.name"] == "the-service"
    (scope,) = resource.scope_spans
    assert [span.name for span in scope.spans] == ["disaggregated_request"] * 2
    assert [span.status.code for span in scope.spans] == [0, 2]


@pytest.mark.anyio
async def test_loop_runs_while_spans_are_sent() -> None:
    """A plugin that stops in a reload holds up nothing: the collector here lives in the same loop."""
    async with collecting() as collector:
        plugin = TraceSpan(collector.url)
        await plugin.start()
        await serve(parsed(), plugin, Worker(BytesReply(b"{}")))

        await asyncio.gather(plugin.stop(), plugin.stop())

    assert len(collector.posts) == 1


@pytest.mark.anyio
async def test_stopped_plugin_passes_requests_on() -> None:
    """Before its start and after its stop the plugin is in nobody's way."""
    async with collecting() as collector:
        plugin = TraceSpan(collector.url)
        await serve(parsed(), plugin, Worker(BytesReply(b"{}")))
        await plugin.start()
        await plugin.stop()
        written = await serve(parsed(), plugin, Worker(BytesReply(b"{}")))

    assert written.body == b"{}"
    assert collector.posts == []


def test_without_opentelemetry_requests_pass() -> None:
    """Without the extra the chain runs, workers get no trace, and the log says what to install."""
    assert run_script(NOTHING_INSTALLED) == (
        "200 False [('tracing.unavailable', \"pip install 'disagg-kernel[otel]'\")]"
    )


def test_provider_of_the_application_is_found_late() -> None:
    """A tracer provider that the application sets up after the first request is used from then on."""
    assert run_script(SET_UP_LATE) == "['disaggregated_request', 'disaggregated_request']"
