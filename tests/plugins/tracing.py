"""What tests of `trace_span` share: the plugin with a provider whose spans can be looked at."""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from plugins.trace_span import TraceSpan


class Recording:
    """The plugin, and a provider for it that keeps its spans in memory."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.plugin = TraceSpan()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.plugin._state.provider = self.provider

    def the_span(self) -> ReadableSpan:
        """The one span that was ended."""
        (span,) = self.exporter.get_finished_spans()
        return span
