"""Fixtures for tests of the kernel."""

from typing import Any

import pytest

from tests.kernel.stage import Stage
from tests.kernel.support import Shelf


@pytest.fixture(autouse=True)
def quiet(logged: list[Any]) -> None:
    """Keep the log lines of broken plugins out of the terminal."""


@pytest.fixture
def stage(shelf: Shelf) -> Stage:
    """A runtime that is not started yet."""
    return Stage(shelf)
