"""Fixtures for tests of the standard plugins."""

from collections.abc import Iterator

import pytest

from tests.plugins.tracing import Recording


@pytest.fixture
def traced() -> Iterator[Recording]:
    """A plugin whose spans can be looked at."""
    recording = Recording()
    yield recording
    recording.provider.shutdown()
