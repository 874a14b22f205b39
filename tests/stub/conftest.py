"""Fixtures for tests of the stub workers."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, which aiohttp needs."""
    return "asyncio"


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that opens a connection for each request, so that none is stale after a restart."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


@pytest.fixture
async def plain() -> AsyncIterator[Stub]:
    """An OpenAI-compatible worker."""
    async with run_stub("openai") as stub:
        yield stub


@pytest.fixture
async def context() -> AsyncIterator[Stub]:
    """A TensorRT-LLM context worker."""
    async with run_stub("trtllm", role="context") as stub:
        yield stub


@pytest.fixture
async def generation() -> AsyncIterator[Stub]:
    """A TensorRT-LLM generation worker."""
    async with run_stub("trtllm", role="generation") as stub:
        yield stub


@pytest.fixture
async def aggregated() -> AsyncIterator[Stub]:
    """A TensorRT-LLM worker that does whole requests."""
    async with run_stub("trtllm", role="both") as stub:
        yield stub


@pytest.fixture
async def kept() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that keeps its connections."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


@pytest.fixture
def workers(context: Stub, generation: Stub, aggregated: Stub) -> tuple[Stub, Stub, Stub]:
    """A context worker, a generation worker, and one that does whole requests."""
    return context, generation, aggregated


@pytest.fixture
async def vllm() -> AsyncIterator[Stub]:
    """A vLLM worker that does whole requests."""
    async with run_stub("vllm") as stub:
        yield stub


@pytest.fixture
async def vllm_pair() -> AsyncIterator[tuple[Stub, Stub]]:
    """A vLLM prefill worker and a decode worker that notices dead ones at once."""
    async with (
        run_stub("vllm", role="prefill") as prefill,
        run_stub("vllm", role="decode", failure_seconds=0) as decode,
    ):
        yield prefill, decode


@pytest.fixture
async def sglang() -> AsyncIterator[Stub]:
    """An SGLang worker that does whole requests."""
    async with run_stub("sglang") as stub:
        yield stub


@pytest.fixture
async def sglang_pair() -> AsyncIterator[tuple[Stub, Stub]]:
    """The two halves of an SGLang pair, the decode one of which notices dead ones at once."""
    async with (
        run_stub("sglang", role="prefill") as prefill,
        run_stub("sglang", role="decode", failure_seconds=0) as decode,
    ):
        yield prefill, decode
