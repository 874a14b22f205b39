"""Objects that stand where a plugin's spec should, and specs of what is no plugin."""

from attrs import frozen

from kernel import BytesReply, CallNext, Exchange, PluginSpec, Reply, Slot


@frozen
class Harmless:
    """Passes on."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


@frozen
class Synchronous:
    """Its call is no coroutine."""

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return BytesReply(b"")


class Plain:
    """No attrs class."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the exchange on."""
        return await call_next(exchange)


NOT_A_SPEC = Harmless
WRONG_NAME = PluginSpec("something_else", Harmless, after="template_guard")
SYNCHRONOUS = PluginSpec("animal", Synchronous, after="template_guard")  # type: ignore[arg-type]
NOT_ATTRS = PluginSpec("animal", Plain, after="template_guard")
NO_ANCHOR = PluginSpec("animal", Harmless)
TWO_ANCHORS = PluginSpec("animal", Harmless, before="sse_guard", after="template_guard")
UNFILLED_NEED = PluginSpec("animal", Harmless, after="template_guard", needs=(Slot[str]("tenant"),))
NEED_FROM_FURTHER_IN = PluginSpec("animal", Harmless, before="template_guard", needs=(Slot[str]("conversation"),))
HARMLESS = PluginSpec("animal", Harmless, after="template_guard")
