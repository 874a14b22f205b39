"""The middleware: endpoint table, one exchange for each request, release, and the last resort."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from structlog.stdlib import get_logger

from kernel.errors import ChainError, ClientGone, Rejection
from kernel.exchange import Endpoint, Exchange
from kernel.race import Message, Receive
from kernel.reply import BytesReply, DataReply, StreamReply
from kernel.runtime import Runtime
from kernel.wire import Send, sendable_headers, write_bytes, write_stream

ASGIApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

log = get_logger()


class KernelMiddleware:
    """Pure ASGI middleware for an application whose lifespan starts `runtime`: its endpoints run through the chain."""

    def __init__(self, app: ASGIApp, *, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime
        self._endpoints = {(endpoint.method, endpoint.path): endpoint for endpoint in runtime.endpoints}
        self._above = [endpoint for endpoint in runtime.endpoints if endpoint.path.endswith("/")]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one ASGI scope."""
        endpoint = self._find(scope) if scope["type"] == "http" else None
        if endpoint is None:
            return await self._app(scope, receive, send)
        exchange = Exchange(endpoint, scope, receive)
        chain = self._runtime.serving.enter(exchange)
        try:
            try:
                with exchange.interruptible():
                    reply = await chain(exchange)
                if isinstance(reply, DataReply):
                    raise ChainError("(outermost)", "left a reply that is not bytes yet")
                headers = sendable_headers(reply)
            except ClientGone:
                return None
            except Exception as error:
                headers = (reply := _last_resort(exchange, error)).headers
            headers.append((b"x-request-id", exchange.id.encode()))
            if isinstance(reply, StreamReply):
                await write_stream(reply, send, headers, exchange)
            else:
                await write_bytes(reply, send, headers)
        finally:
            await exchange.release()

    def _find(self, scope: Message) -> Endpoint | None:
        path, mount, method = scope["path"], scope.get("root_path", ""), scope["method"]
        path = path[len(mount) :] if mount and path.startswith(f"{mount}/") else path
        return self._endpoints.get((method, path)) or next(
            (row for row in self._above if row.method == method and path.startswith(row.path)), None
        )


def _last_resort(exchange: Exchange, error: Exception) -> BytesReply:
    """The answer when no envelope was made: a rejection's own text, or a constant."""
    if isinstance(error, Rejection):
        headers = [(b"content-type", b"text/plain; charset=utf-8"), *error.raw_headers]
        return BytesReply(error.message.encode(), error.status, headers)
    log.error("plugin.failed", plugin=exchange.culprit(error), request_id=exchange.id, exc_info=error)
    return BytesReply(b'{"error":"internal server error"}', 500, [(b"content-type", b"application/json")])
