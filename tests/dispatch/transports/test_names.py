"""Workers with a name: all of its addresses count, and it is not looked up for every connection. Only lean."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plugins.dispatch.client import ConnectFault, Limits, TimeoutFault
from plugins.dispatch.transports.lean import LeanClient, pool
from tests.dispatch.transports.clock import Clock
from tests.dispatch.transports.exchange import call, fetch, sized, turns
from tests.dispatch.transports.peer import says, worker

pytestmark = pytest.mark.anyio

GOOD = sized(b"good")
DEAD = "127.0.0.2"


@pytest.fixture
def anyio_backend() -> str:
    """A loop whose resolver can be replaced."""
    return "asyncio"


@pytest.fixture
async def client() -> AsyncIterator[LeanClient]:
    """A client."""
    client = LeanClient(60.0)
    yield client
    await client.close()


class Resolver:
    """Knows the addresses of one name, and how often it was asked."""

    def __init__(self, *addresses: str, hangs: bool = False) -> None:
        self.addresses = addresses
        self.hangs = hangs
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int, **options: Any) -> list[Any]:
        """Stand in for `getaddrinfo` of a loop."""
        if host in (DEAD, "127.0.0.1"):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        self.asked.append(host)
        if self.hangs:
            await asyncio.Event().wait()
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, kind, 6, "", (address, port)) for address in self.addresses for kind in (1, 2)]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "Resolver":
        """Be the resolver of the running loop."""
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self)
        return self


async def test_another_address_is_tried_when_one_refuses(client: LeanClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on the good one is tried first."""
    resolver = Resolver(DEAD, "127.0.0.1").install(monkeypatch)
    async with worker(says(GOOD)) as server:
        for _ in range(3):
            got = await fetch(client, call(f"http://worker.test:{server.port}"), fresh=True)
            assert got.whole == (200, b"good")
        (target,) = client._pools.values()
        assert target._addresses == ("127.0.0.1", DEAD)
    assert resolver.asked == ["worker.test"]


async def test_an_address_that_does_not_answer_costs_its_share_of_the_time(
    client: LeanClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has the rest."""
    Resolver(DEAD, "127.0.0.1").install(monkeypatch)
    async with worker(says(GOOD)) as server:
        with socket.socket() as silent:
            silent.bind((DEAD, server.port))
            silent.listen(0)
            waiting = [socket.socket() for _ in range(8)]
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(silent.getsockname())
            request = call(f"http://worker.test:{server.port}", limits=Limits(60.0))
            task = asyncio.ensure_future(fetch(client, request))
            await turns(20)
            assert server.connections == 0
            clock.move(31.0)
            assert (await task).whole == (200, b"good")
            for one in waiting:
                one.close()


async def test_a_name_is_asked_for_again_when_none_of_its_addresses_accepts(
    client: LeanClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker may have moved."""
    resolver = Resolver(DEAD).install(monkeypatch)
    async with worker(says(GOOD)) as server:
        request = call(f"http://worker.test:{server.port}")
        assert type((await fetch(client, request)).fault) is ConnectFault
        resolver.addresses = ("127.0.0.1",)
        assert (await fetch(client, request)).whole == (200, b"good")
    assert len(resolver.asked) == 2


async def test_addresses_are_used_for_a_while(client: LeanClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the name is asked for anew."""
    resolver = Resolver("127.0.0.1").install(monkeypatch)
    async with worker(says(GOOD)) as server:
        request = call(f"http://worker.test:{server.port}")
        for _ in range(3):
            await fetch(client, request, fresh=True)
        assert len(resolver.asked) == 1
        monkeypatch.setattr(pool, "RESOLVED_SECONDS", 0.0)
        (target,) = client._pools.values()
        target._expiry = 0.0
        for _ in range(3):
            await fetch(client, request, fresh=True)
        assert len(resolver.asked) == 4


async def test_a_name_without_an_address_was_sent_nothing(client: LeanClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver says so."""
    Resolver().install(monkeypatch)
    assert type((await fetch(client, call("http://worker.test:8000"))).fault) is ConnectFault


@pytest.mark.parametrize(("limits", "fault"), [(Limits(0.05), ConnectFault), (Limits(9.0, total=0.05), TimeoutFault)])
async def test_a_resolver_that_does_not_answer_is_not_waited_for(
    client: LeanClient, monkeypatch: pytest.MonkeyPatch, limits: Limits, fault: type[Exception]
) -> None:
    """It counts as connecting."""
    Resolver("127.0.0.1", hangs=True).install(monkeypatch)
    assert type((await fetch(client, call("http://worker.test:8000", limits=limits))).fault) is fault


async def test_a_client_that_is_closed_makes_no_connection(client: LeanClient) -> None:
    """Not even one that was under way."""
    async with worker(says(GOOD)) as server:
        task = asyncio.ensure_future(fetch(client, call(server.url)))
        await asyncio.sleep(0)
        await client.close()
        assert type((await task).fault) is ConnectFault
        assert type((await fetch(client, call(server.url))).fault) is ConnectFault
        await server.until_left()
