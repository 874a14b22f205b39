"""Stub workers: real HTTP servers that speak an engine's protocol strictly, for tests and demos.

In a test: `async with run_stub("trtllm", role="context") as stub`, then `stub.url`, `stub.state()`,
`stub.add_fault("status", status=503)`, `stub.kill()`, `await stub.restart()`, `await stub.until(...)`.
As a process: `python -m plugins.dispatch.embedded.stub --engine openai`, controlled under `/_stub/`.

What a real engine answers wrongly in silence, or dies of, is done here too, and counted: after a test,
`stub.state().violations` is to be empty, and so are `held_blocks`, `leaked_blocks`, `pairs` and `running`.
"""

from plugins.dispatch.embedded.stub.engines import ENGINES
from plugins.dispatch.embedded.stub.faults import FaultRule
from plugins.dispatch.embedded.stub.ledger import HandoffCounts, Received, StubState
from plugins.dispatch.embedded.stub.server import Stub, run_stub
from plugins.dispatch.embedded.stub.settings import StubSettings
from plugins.dispatch.embedded.stub.text import ENDS_IN_CONTEXT

__all__ = [
    "ENDS_IN_CONTEXT",
    "ENGINES",
    "FaultRule",
    "HandoffCounts",
    "Received",
    "Stub",
    "StubSettings",
    "StubState",
    "run_stub",
]
