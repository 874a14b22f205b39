"""Which transport an attempt takes."""

from collections.abc import Coroutine, Iterable
from typing import Any, Literal, TypeAlias

from plugins.dispatch.client import Call, Client, Response
from plugins.dispatch.transports.aiohttp import AiohttpClient
from plugins.dispatch.transports.lean import LeanClient

Transport: TypeAlias = Literal["lean", "aiohttp"]


def check_transport(transport: Transport | None, urls: Iterable[str]) -> None:
    """See that a transport reaches the workers with these URLs.

    Raises:
        ValueError: it does not.
    """
    if transport == "lean" and any(url.startswith("https:") for url in urls):
        raise ValueError("the transport 'lean' speaks no TLS, which a worker at https:// needs")


class ChosenClient:
    """Sends over `transport`; without one over lean to plain HTTP, and over aiohttp to workers with TLS.

    A transport is made when it is first needed, inside a running event loop.
    """

    def __init__(self, transport: Transport | None, keep_alive_seconds: float) -> None:
        self._plain: Transport = transport or "lean"
        self._secure: Transport = transport or "aiohttp"
        self._keep_alive_seconds = keep_alive_seconds
        self._clients: dict[Transport, Client] = {}

    def send(self, call: Call, *, fresh: bool = False) -> Coroutine[Any, Any, Response]:
        """See `Client`."""
        transport = self._secure if call.url.startswith("https:") else self._plain
        client = self._clients.get(transport) or self._make(transport)
        return client.send(call, fresh=fresh)

    async def close(self) -> None:
        """See `Client`."""
        for client in self._clients.values():
            await client.close()

    def _make(self, transport: Transport) -> Client:
        kind = LeanClient if transport == "lean" else AiohttpClient
        client = self._clients[transport] = kind(self._keep_alive_seconds)
        return client
