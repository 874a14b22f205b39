"""Owns the workers that the tests of the embedded default share."""

import asyncio
from collections.abc import Iterator

import pytest

from plugins.dispatch.embedded.launcher import EmbeddedWorkers


@pytest.fixture
def anyio_backend() -> str:
    """The launcher is written for asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def worker_url() -> Iterator[str]:
    """One running worker."""
    workers = EmbeddedWorkers()
    (url,) = asyncio.run(workers.start(1, progress=lambda _line: None))
    yield url
    asyncio.run(workers.stop())
