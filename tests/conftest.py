"""Fixtures that every test may ask for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from structlog.testing import capture_logs

import tests.cells  # noqa: F401 - before any metric is made
from tests.kernel.support import Shelf


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, the one loop that the kernel runs on."""
    return "asyncio"


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """The log lines of the test so far, each as its values."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A folder on the import path in which a test offers plugins."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return Shelf(folder)


@pytest.fixture(scope="session", autouse=True)
def _fresh_loggers() -> Iterator[None]:
    """No logger keeps the configuration of the first test that used it."""
    configure = structlog.configure

    def configure_uncached(**options: Any) -> None:
        configure(**options | {"cache_logger_on_first_use": False})

    with patch.object(structlog, "configure", configure_uncached):
        yield


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """What a test does to the configuration of logs ends with it."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
