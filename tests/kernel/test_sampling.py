"""Sampling: how long each plugin took, told to the distribution's telemetry."""

import pytest

from kernel import KernelMiddleware, Runtime, assembly
from plugins.configuration import Document
from tests.kernel.stage import Stage, nowhere
from tests.kernel.support import Request, standard_of

pytestmark = pytest.mark.anyio


async def test_one_exchange_of_many_is_timed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plugin's own seconds, inner plugins not counted."""
    monkeypatch.setattr(assembly, "TIMED_EVERY", 4)
    await stage.runtime.start()
    for _ in range(9):
        await stage.ask()
    assert [set(sample) for sample in stage.telemetry.samples] == [{"left", "heir", "right", "answer"}] * 2
    assert all(0 <= seconds < 60 for sample in stage.telemetry.samples for seconds in sample.values())


async def test_without_telemetry_nothing_is_timed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing breaks."""
    monkeypatch.setattr(assembly, "TIMED_EVERY", 1)
    bare = Runtime(standard_of("answer"), lambda: Document.parse("", "kernel.yaml"))
    await bare.start()
    assert (await Request(KernelMiddleware(nowhere, runtime=bare)).run()).text == "answer"
