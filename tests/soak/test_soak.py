"""The soak as a test: a hundred thousand requests, or as many as there is time for, and nothing is left of them."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.soak.soak import Plan, growth, soak

REQUESTS: Final = int(os.environ.get("SOAK_REQUESTS", "100000"))
SECONDS: Final = 240.0

LARGEST_GROWTH: Final = 100.0
"""Bytes for each request."""

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(SECONDS + 120)]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The faster event loop, as the workers and clients of the soak share one."""
    return "asyncio", {"use_uvloop": True}


async def test_nothing_is_left_of_many_requests(tmp_path: Path) -> None:
    """No load, request, task, socket or KV block; every leg ended once, and memory is flat after the first half."""
    record = await soak(Plan(requests=REQUESTS, seconds=SECONDS), tmp_path)
    assert record.problems == []
    assert record.done >= min(REQUESTS, 5_000), "too few requests to tell anything"
    assert growth(record) < LARGEST_GROWTH
