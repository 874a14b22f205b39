"""The second port of a worker, on which other workers ask for what it holds."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from attrs import define, field

from plugins.dispatch.embedded.stub.endings import Rejection
from plugins.dispatch.embedded.stub.listener import Connections, Listener

Handler = Callable[[web.BaseRequest, str], Awaitable[web.Response]]


@define(eq=False)
class SideDoor:
    """Listens on a port of its own for as long as the worker lives, and keeps the port while it is dead."""

    host: str
    wanted: int
    answer: Handler
    _listener: Listener = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listener = Listener(self.host, self.wanted, Connections(self._answer, 0.0, lambda: None))

    @property
    def port(self) -> int:
        """The port, once it is reserved."""
        return self._listener.port

    def reserve(self) -> None:
        """Take the port."""
        self._listener.reserve()

    async def open(self) -> None:
        """Accept connections."""
        await self._listener.open()

    def kill(self) -> None:
        """Close and break what is open, as the end of a process does."""
        self._listener.close()
        self._listener.abort_all()

    async def release(self) -> None:
        """Give the port back."""
        await self._listener.release()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        return await answer_side(self.answer, request)


async def read_asked(request: web.BaseRequest, *names: str) -> dict[str, Any]:
    """Read what another worker asks for; raises `Rejection` unless it is an object with these names."""
    try:
        asked = orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        raise Rejection(400, {"message": "the body is not JSON"}) from None
    missing = [name for name in names if name not in asked] if isinstance(asked, dict) else names
    if missing:
        raise Rejection(400, {"message": f"the body lacks {', '.join(missing)}"})
    return dict(asked)


async def answer_side(handler: Handler, request: web.BaseRequest) -> web.Response:
    """Answer another worker; what the engine declines is told in its own words."""
    try:
        return await handler(request, request.path)
    except Rejection as rejection:
        body = orjson.dumps(rejection.body, default=repr)
        return web.Response(body=body, status=rejection.status, content_type="application/json")
