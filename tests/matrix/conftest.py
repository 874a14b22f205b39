"""What the tests of the fault matrix share."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.matrix.setups import ADMIN_KEY


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The event loop that the kernel serves on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADMIN_KEY, "secret")


@pytest.fixture(scope="module", autouse=True)
def _collector() -> Iterator[None]:
    """Leave the garbage collector as it was: each server puts what there is at its start out of its way."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
