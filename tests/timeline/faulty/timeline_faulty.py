"""A plugin that fails on purpose, for the timelines of faults."""

from typing import Literal

from attrs import frozen

from kernel import CallNext, DataReply, Exchange, PluginSpec, Reply


@frozen
class Faulty:
    """Raise before calling on, or answer with something that is no JSON."""

    mode: Literal["raise", "unserializable"] = "raise"

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Fail."""
        if self.mode == "raise":
            raise RuntimeError("broken on purpose")
        await call_next(exchange)
        return DataReply({"reply": object()})


PLUGIN = PluginSpec("timeline_faulty", Faulty, after="count_responses")
