"""Which transport an attempt takes."""

from collections.abc import Coroutine, Iterable
from typing import Any, Final, Literal, TypeAlias

from plugins.dispatch.client import Call, Client, ConnectFault, Response
from plugins.dispatch.transports.aiohttp import AiohttpClient
from plugins.dispatch.transports.lean import LeanClient
from plugins.dispatch.transports.tls import TlsConfig

Transport: TypeAlias = Literal["lean", "aiohttp"]

_NO_TLS: Final = "the transport 'lean' speaks no TLS, which a worker at https:// needs"


def check_transport(transport: Transport | None, tls: TlsConfig | None, urls: Iterable[str]) -> None:
    """See that a transport reaches the workers with these URLs, and that what is said of TLS means one of them.

    Raises:
        ValueError: it does not.
    """
    secure = any(url.startswith("https:") for url in urls)
    if transport == "lean" and secure:
        raise ValueError(_NO_TLS)
    if tls is not None and not secure:
        raise ValueError("tls is for workers at https://, and there is none")


class ChosenClient:
    """Sends over `transport`; without one over lean to plain HTTP, and over aiohttp to workers with TLS.

    A transport is made when it is first needed, inside a running event loop.
    """

    def __init__(self, transport: Transport | None, keep_alive_seconds: float, tls: TlsConfig | None = None) -> None:
        self._plain: Transport = transport or "lean"
        self._secure: Transport = transport or "aiohttp"
        self._keep_alive_seconds = keep_alive_seconds
        self._tls = tls
        self._clients: dict[Transport, Client] = {}
        self._by_scheme: dict[str, Client] = {}

    def send(self, call: Call, *, fresh: bool = False) -> Coroutine[Any, Any, Response]:
        """See `Client`."""
        client = self._by_scheme.get(call.url[:6]) or self._choose(secure=call.url.startswith("https:"))
        return _refuse() if client is None else client.send(call, fresh=fresh)

    async def close(self) -> None:
        """See `Client`."""
        for client in self._clients.values():
            await client.close()

    def _choose(self, *, secure: bool) -> Client | None:
        transport = self._secure if secure else self._plain
        if secure and transport == "lean":  # a discovery found it
            return None
        client = self._clients.get(transport)
        if client is None:
            seconds = self._keep_alive_seconds
            client = LeanClient(seconds) if transport == "lean" else AiohttpClient(seconds, self._tls)
            self._clients[transport] = client
        self._by_scheme["https:" if secure else "http:/"] = client
        return client


async def _refuse() -> Response:
    raise ConnectFault(_NO_TLS)
