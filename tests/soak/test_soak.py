"""The soak as a test: a hundred thousand requests, or as many as there is time for, and nothing is left of them."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.soak.soak import Plan, growth, soak

REQUESTS: Final = int(os.environ.get("SOAK_REQUESTS", "100000"))
SECONDS: Final = 120.0

LARGEST_GROWTH: Final = 200.0
"""Bytes for each request; the smallest thing that a request may leave whole, its exchange, has more than a thousand.

What is smaller is found by `test_leaks.py`.
"""

WARM: Final = 50_000
"""Requests until the collector has been through its oldest objects a few times, and memory tells anything."""

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(SECONDS + 120)]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The faster event loop, as the workers and clients of the soak share one."""
    return "asyncio", {"use_uvloop": True}


async def test_nothing_is_left_of_many_requests(tmp_path: Path) -> None:
    """No load, request, task, socket or KV block; every leg ended once, and memory is flat in the second half."""
    record = await soak(Plan(requests=REQUESTS, seconds=SECONDS), tmp_path)
    assert record.problems == []
    assert record.done >= min(REQUESTS, 5_000), "too few requests to tell anything"
    assert record.done < WARM or growth(record) < LARGEST_GROWTH
