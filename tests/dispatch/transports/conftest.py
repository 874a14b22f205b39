"""Both transports, each on every loop that it has to run on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from plugins.dispatch.client import Client
from plugins.dispatch.transports.aiohttp import AiohttpClient
from plugins.dispatch.transports.lean import LeanClient
from tests.dispatch.transports.certificates import Papers
from tests.dispatch.transports.clock import Clock
from tests.dispatch.transports.counters import record_timers, sockets
from tests.dispatch.transports.exchange import turns

KEEP_ALIVE_SECONDS = 60.0

_TRANSPORTS: dict[str, Callable[[float], Client]] = {"aiohttp": AiohttpClient, "lean": LeanClient}


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The loop."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture(params=sorted(_TRANSPORTS))
def transport(request: pytest.FixtureRequest) -> str:
    """The transport's name."""
    name: str = request.param
    return name


@pytest.fixture
def make_client(transport: str) -> Callable[[float], Client]:
    """How a client is made that keeps idle connections for a number of seconds."""
    return _TRANSPORTS[transport]


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a loop of the standard library."""
    loop = asyncio.get_running_loop()
    clock = Clock(loop.time)
    monkeypatch.setattr(loop, "time", clock)
    return clock


@pytest.fixture
async def client(make_client: Callable[[float], Client], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client; afterwards nothing that it started is left, and nobody complained to the loop."""
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
    timers = record_timers(monkeypatch)
    before = len(asyncio.all_tasks()), len(sockets())
    client = make_client(KEEP_ALIVE_SECONDS)
    yield client
    await client.close()
    assert [timer for timer in timers if not timer.cancelled() and timer.when() > loop.time()] == []
    await turns(3)
    assert (len(asyncio.all_tasks()), len(sockets())) == before
    assert complaints == []


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates, made once."""
    return Papers.make(tmp_path_factory.mktemp("papers"))
