"""HTTP attempts over aiohttp."""

import io
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from time import monotonic
from typing import Any, Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError
from aiohttp.tracing import Trace
from yarl import URL

from plugins.dispatch.client import (
    Call,
    ConnectFault,
    Fault,
    Limits,
    MalformedFault,
    Response,
    StaleFault,
    TimeoutFault,
    TransportFault,
)
from plugins.dispatch.headers import Traits
from plugins.dispatch.transports.tls import TlsConfig

HEAD_LIMIT: Final = 80 * 1024
"""TensorRT-LLM workers put a request's metrics into headers of up to this size."""

STALE_SECONDS: Final = 1.0
"""A connection that its worker had closed breaks within a round trip; later, a worker died of its work."""

_LARGE: Final = 1024 * 1024
_OWN_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

_connected: ContextVar[list[bool]] = ContextVar("connected")


class _BrokenBody(aiohttp.ClientPayloadError):
    """What came is no body."""


_FAULTS: Final[tuple[tuple[tuple[type[Exception], ...], type[Fault]], ...]] = (
    # a UnicodeError is about a host whose name cannot be one
    ((aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, UnicodeError), ConnectFault),
    ((TimeoutError,), TimeoutFault),
    ((aiohttp.ClientResponseError, _BrokenBody), MalformedFault),
    ((aiohttp.ClientError, OSError), TransportFault),
)
_FOREIGN: Final = (aiohttp.ClientError, OSError, UnicodeError)


class _Handler(ResponseHandler):
    """Tells whoever reads a body that it is broken; aiohttp itself would let the reader wait for ever."""

    def set_exception(self, exc: BaseException, *cause: BaseException, **named: BaseException) -> None:
        super().set_exception(exc, *cause, **named)
        payload = self._payload
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            payload.set_exception(_BrokenBody(str(exc)) if isinstance(exc, HttpProcessingError) else exc)


class _Connector(aiohttp.TCPConnector):
    """Tells the attempt that asked for a connection that it is a new one; aiohttp itself does not say."""

    def __init__(self, **options: Any) -> None:
        super().__init__(limit=0, **options)
        self._factory = cast("Any", partial(_Handler, loop=self._loop))

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # aiohttp names it
    ) -> ResponseHandler:
        connected = _connected.get()
        connected.append(False)
        connection = await super()._create_connection(req, traces, timeout)
        connected.append(True)
        return connection


class AiohttpClient:
    """Keeps idle connections for `keep_alive_seconds`, less than workers do; needs a running event loop."""

    def __init__(self, keep_alive_seconds: float, tls: TlsConfig | None = None) -> None:
        context = True if tls is None else tls.context
        self._server_name = None if tls is None else tls.server_name
        self._kept = _session(_Connector(keepalive_timeout=keep_alive_seconds, ssl=context))
        self._fresh = _session(_Connector(force_close=True, ssl=context))

    async def send(self, call: Call, *, fresh: bool = False) -> Response:
        """See `Client`."""
        session = self._fresh if fresh else self._kept
        connected: list[bool] = []
        _connected.set(connected)
        began = monotonic()
        try:
            return _Response(
                await session.request(
                    call.method,
                    _url(call.url),
                    headers=call.headers,
                    # aiohttp writes a large body in pieces only out of a file
                    data=call.body if len(call.body) < _LARGE else io.BytesIO(call.body),
                    timeout=_timeout(call.limits),
                    allow_redirects=False,
                    server_hostname=self._server_name,
                )
            )
        except _FOREIGN as error:
            fault = _fault(error)
            reused = not connected and type(fault) is TransportFault and not _has_begun(error)
            if reused and monotonic() - began < STALE_SECONDS:
                fault = StaleFault(fault.detail)
            raise fault from error
        finally:
            if call.on_sent is not None and connected[-1:] != [False]:  # else it was still being connected to
                call.on_sent()

    async def close(self) -> None:
        """See `Client`."""
        await self._kept.close()
        await self._fresh.close()


class _Response:
    """An answer of aiohttp's."""

    __slots__ = ("_content", "_response", "headers", "status", "traits")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self.traits = Traits.of(response.headers)

    async def chunk(self) -> bytes:
        try:
            return await self._content.readany()
        except _FOREIGN as error:
            raise _fault(error) from error

    def rest(self) -> bytes | None:
        return None

    def close(self) -> None:
        self._response.close()


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_OWN_HEADERS,
        max_line_size=HEAD_LIMIT,
        max_field_size=HEAD_LIMIT,
    )


def _fault(error: Exception) -> Fault:
    kind = next(fault for kinds, fault in _FAULTS if isinstance(error, kinds))
    cause = getattr(error, "os_error", None)  # of a handshake that broke aiohttp tells nothing more
    hint = f" ({type(cause).__name__})" if cause is not None and cause.strerror is None else ""
    return kind(f"{type(error).__name__}: {error}{hint}")


def _has_begun(error: Exception) -> bool:
    """Whether the connection broke in the middle of an answer's head."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)


@lru_cache(maxsize=4096)
def _url(url: str) -> URL:
    return URL(url, encoded=True)


@lru_cache(maxsize=64)
def _timeout(limits: Limits) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=limits.total, connect=limits.connect, sock_read=limits.read)
