"""Workers at `https://`: whom the kernel believes, and what it shows them."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from plugins.dispatch.client import ConnectFault, Fault, TransportFault
from plugins.dispatch.transports.aiohttp import AiohttpClient
from plugins.dispatch.transports.tls import TlsConfig
from tests.dispatch.support import ask, body_of, exchange_of, running, single
from tests.dispatch.transports.certificates import Papers, serve_with
from tests.dispatch.transports.exchange import Got, call, fetch, sized
from tests.dispatch.transports.peer import Peer, Worker, says, worker

pytestmark = pytest.mark.anyio

GOOD = sized(b"good")


@asynccontextmanager
async def secure(context: ssl.SSLContext) -> AsyncIterator[tuple[Worker, str]]:
    """A worker with TLS, and its URL."""
    async with worker(says(GOOD), context=context) as server:
        yield server, server.url.replace("http:", "https:")


async def get(url: str, tls: TlsConfig | None, count: int = 1) -> Got:
    """The last of some requests."""
    client = AiohttpClient(60.0, tls)
    try:
        for _ in range(count):
            got = await fetch(client, call(url))
        return got
    finally:
        await client.close()


async def test_a_worker_with_a_certificate_of_a_trusted_authority_is_believed(papers: Papers) -> None:
    """Its connection is kept like any other."""
    tls = TlsConfig(ca=papers.ours.own.certificate)
    async with secure(serve_with(papers.server)) as (server, url):
        assert (await get(url, tls, 3)).whole == (200, b"good")
        assert server.connections == 1
        await server.until_left()


@pytest.mark.parametrize(
    "make",
    [
        lambda papers: None,
        lambda papers: TlsConfig(),
        lambda papers: TlsConfig(ca=papers.foreign.own.certificate),
        lambda papers: TlsConfig(ca=papers.ours.own.certificate, server_name="other.test"),
    ],
    ids=["no configuration", "the system's authorities", "a foreign authority", "another name"],
)
async def test_a_worker_that_is_not_known_is_sent_nothing(
    papers: Papers, make: Callable[[Papers], TlsConfig | None]
) -> None:
    """The log learns why; the client only that no worker can be reached."""
    async with secure(serve_with(papers.server)) as (server, url):
        fault = (await get(url, make(papers))).fault
        assert type(fault) is ConnectFault
        assert "certificate verify failed" in fault.detail
        assert (fault.status, fault.message) == (503, ConnectFault.answer[2])
        await server.until_left()


async def test_the_name_in_a_certificate_counts(papers: Papers) -> None:
    """That of the URL, or the one that is configured."""
    ca = papers.ours.own.certificate
    async with secure(serve_with(papers.named)) as (_, url):
        assert (await get(url, TlsConfig(ca=ca, server_name="worker.test"))).whole == (200, b"good")
        assert type((await get(url, TlsConfig(ca=ca))).fault) is ConnectFault


async def test_whoever_answers_can_be_believed(papers: Papers) -> None:
    """If the configuration says so."""
    async with secure(serve_with(papers.named)) as (_, url):
        assert (await get(url, TlsConfig(verify=False))).whole == (200, b"good")


async def test_the_kernel_shows_its_certificate_to_a_worker_that_asks(papers: Papers) -> None:
    """The worker knows it by its authority."""
    shown = papers.kernel
    tls = TlsConfig(ca=papers.ours.own.certificate, certificate=shown.certificate, key=shown.key)
    async with secure(serve_with(papers.server, papers.ours)) as (_, url):
        assert (await get(url, tls, 2)).whole == (200, b"good")


@pytest.mark.parametrize("shown", ["none", "another authority's"])
@pytest.mark.parametrize(
    ("version", "kind"), [(ssl.TLSVersion.TLSv1_2, ConnectFault), (ssl.TLSVersion.TLSv1_3, TransportFault)]
)
async def test_a_worker_that_does_not_know_the_kernel_answers_nothing(
    papers: Papers, shown: str, version: ssl.TLSVersion, kind: type[Fault]
) -> None:
    """In TLS 1.2 the handshake fails; in 1.3 the worker says so only when the request is under way."""
    ca, other = papers.ours.own.certificate, papers.foreign.own
    tls = TlsConfig(ca=ca) if shown == "none" else TlsConfig(ca=ca, certificate=other.certificate, key=other.key)
    context = serve_with(papers.server, papers.ours)
    context.maximum_version = version
    async with secure(context) as (_, url):
        fault = (await get(url, tls)).fault
    assert type(fault) is kind
    assert fault.worker_down
    assert "reset" in fault.detail.lower()


async def test_a_worker_without_tls_is_no_worker_with_it(papers: Papers) -> None:
    """What it answers to the handshake is none."""

    async def script(peer: Peer) -> None:
        await peer.send(sized(b"what?", status=b"400 Bad Request"))
        await peer.gone()

    async with worker(script) as server:
        fault = (await get(server.url.replace("http:", "https:"), TlsConfig(ca=papers.ours.own.certificate))).fault
        assert type(fault) is ConnectFault
        assert "SSL" in fault.detail


async def test_a_pool_serves_and_probes_over_tls(papers: Papers) -> None:
    """The same files for both."""
    shown = papers.kernel
    tls = TlsConfig(ca=papers.ours.own.certificate, certificate=shown.certificate, key=shown.key)
    answer = sized(b'{"ok":true}', b"content-type: application/json")
    context = serve_with(papers.server, papers.ours)
    async with worker(says(answer), context=context) as server:
        url = server.url.replace("http:", "https:")
        async with running(single(url, tls=tls)) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
        async with running(single(url, tls=TlsConfig(verify=False))) as dispatch:
            error = (await ask(dispatch, exchange_of(body_of()))).error
            assert (error.status, error.code) == (503, "no_worker_ready")
