"""HTTP attempts over our own client."""

import asyncio
from typing import Final

from plugins.dispatch.client import Call, ConnectFault, Response
from plugins.dispatch.transports.lean.pool import ConnectionPool
from plugins.dispatch.transports.lean.request import Target, locate, write_head

_FOREVER: Final = float("inf")

ORIGINS: Final = 64
"""So many are remembered without a look at which of them have connections; as workers come and go, most have none."""

ROUTES: Final = 4096


class LeanClient:
    """Keeps idle connections for `keep_alive_seconds`, less than workers do; made inside a running event loop."""

    def __init__(self, keep_alive_seconds: float) -> None:
        self._keep_alive_seconds = keep_alive_seconds
        self._loop = asyncio.get_running_loop()
        self._pools: dict[tuple[str, int], ConnectionPool] = {}
        self._routes: dict[tuple[str, str], tuple[ConnectionPool, Target]] = {}
        self._many = ORIGINS
        self._closed = False

    async def send(self, call: Call, *, fresh: bool = False) -> Response:
        """See `Client`.

        Raises:
            ValueError: the URL or a header cannot be sent as it is.
        """
        if self._closed:
            raise ConnectFault("the client is closed")
        pool, target = self._routes.get((call.method, call.url)) or self._find(call.method, call.url)
        head = write_head(call, target, close=fresh)
        now = self._loop.time()
        until = _FOREVER if call.limits.total is None else now + call.limits.total
        connection = None if fresh else pool.take(now)
        if connection is None:
            connection = await pool.connect(call.limits, until)
            now = self._loop.time()
        response = connection.begin(call, head, now, until, last=fresh)
        if call.on_sent is not None:
            call.on_sent()
        try:
            while not response.status and response.carrier is not None:
                await connection.expect()
        except asyncio.CancelledError:
            response.close()
            raise
        if not response.status:
            raise response.fault()
        return response

    async def close(self) -> None:
        """See `Client`."""
        self._closed = True
        for pool in self._pools.values():
            await pool.close()

    def _find(self, method: str, url: str) -> tuple[ConnectionPool, Target]:
        """The connections for a URL, and what a request for it is written with; remembered for the next one."""
        target = locate(method, url)
        pool = self._pools.get(target.origin) or self._add(target.origin)
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        route = self._routes[method, url] = (pool, target)
        return route

    def _add(self, origin: tuple[str, int]) -> ConnectionPool:
        if len(self._pools) >= self._many:
            self._pools = {known: pool for known, pool in self._pools.items() if pool.in_use}
            self._routes.clear()
            self._many = max(ORIGINS, 2 * len(self._pools))
        pool = self._pools[origin] = ConnectionPool(origin, self._keep_alive_seconds, self._loop)
        return pool
