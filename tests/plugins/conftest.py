"""Fixtures for tests of the standard plugins."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.dispatch.transports.clock import Clock
from tests.plugins.tracing import Recording


@pytest.fixture
def traced() -> Iterator[Recording]:
    """A plugin whose spans can be looked at."""
    recording = Recording()
    yield recording
    recording.provider.shutdown()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the running loop."""
    loop = asyncio.get_running_loop()
    clock = Clock(loop.time)
    monkeypatch.setattr(loop, "time", clock)
    return clock
