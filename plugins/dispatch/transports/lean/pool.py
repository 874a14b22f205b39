"""The connections to one host and port: which are idle, and how new ones are made."""

import asyncio
import ipaddress
import socket
from typing import Final

from plugins.dispatch.client import ConnectFault, Limits, TimeoutFault
from plugins.dispatch.transports.lean.connection import Connection
from plugins.dispatch.transports.lean.repeats import Repeats

RESOLVED_SECONDS: Final = 10.0
"""How long the addresses of a name are used."""


class ConnectionPool:
    """Keeps idle connections for `keep_alive_seconds`, without a limit to their number; the last one is used first."""

    def __init__(self, origin: tuple[str, int], keep_alive_seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self.repeats = Repeats()
        self._host, self._port = origin
        self._seconds = keep_alive_seconds
        self._loop = loop
        self._idle: dict[Connection, float] = {}
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._addresses: tuple[str, ...] = ()
        self._expiry = 0.0
        self._making = 0
        self._closed = False
        self._emptied = asyncio.Event()

    @property
    def in_use(self) -> bool:
        """Whether it has connections, or is about to have one."""
        return bool(self._open or self._making)

    def take(self, now: float) -> Connection | None:
        """A connection that was kept, if there is one."""
        while self._idle:
            connection, since = self._idle.popitem()
            if now - since < self._seconds and not connection.is_closing():
                return connection
            connection.abort()
        return None

    async def connect(self, limits: Limits, until: float) -> Connection:
        """A new connection, to the first of the host's addresses that accepts it.

        Raises:
            ConnectFault: none does, or not within the time for it.
            TimeoutFault: the loop's time reached `until`, which is sooner.
        """
        self._making += 1
        try:
            return await self._connect(limits, until)
        finally:
            self._making -= 1

    async def _connect(self, limits: Limits, until: float) -> Connection:
        deadline = self._loop.time() + limits.connect
        late: type[ConnectFault | TimeoutFault] = ConnectFault
        if until < deadline:
            deadline, late = until, TimeoutFault
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._resolve()
        except TimeoutError as error:
            raise late("the name was not resolved in time") from error
        except (OSError, UnicodeError) as error:
            raise ConnectFault(f"{type(error).__name__}: {error}") from error
        kind: type[ConnectFault | TimeoutFault] = ConnectFault
        detail = "the name has no address"
        for index, address in enumerate(addresses):
            share = (deadline - self._loop.time()) / (len(addresses) - index)
            try:
                async with asyncio.timeout(share):
                    return await self._open_to(address)
            except TimeoutError:
                kind, detail = late, "no connection was made in time"
            except OSError as error:
                kind, detail = ConnectFault, f"{type(error).__name__}: {error}"
        self._addresses = ()
        raise kind(detail)

    def keep(self, connection: Connection) -> None:
        """See `Home`."""
        self._idle[connection] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._sweep)

    def drop(self, connection: Connection) -> None:
        """See `Home`."""
        self._idle.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        """See `Home`."""
        self._open.discard(connection)
        if self._open:
            return
        if self._timer is not None:  # one that is not in use must leave nothing behind
            self._timer.cancel()
            self._timer = None
        if self._closed:
            self._emptied.set()

    async def close(self) -> None:
        """Close every connection, and each one that is still being made as soon as it is there."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self._open):
            connection.close()
        if self._open:
            await self._emptied.wait()

    async def _resolve(self) -> tuple[str, ...]:
        """The addresses of the host; those of a name are remembered for a while."""
        if self._addresses and self._loop.time() < self._expiry:
            return self._addresses
        try:
            ipaddress.ip_address(self._host)
        except ValueError:
            found = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in found))
        else:
            self._addresses = (self._host,)
        self._expiry = self._loop.time() + RESOLVED_SECONDS
        return self._addresses

    async def _open_to(self, address: str) -> Connection:
        loop = self._loop
        _, connection = await loop.create_connection(lambda: Connection(self, loop), address, self._port)
        if self._closed or connection.is_closing():
            connection.abort()
            raise ConnectionAbortedError("closed at once")
        self._open.add(connection)
        if self._addresses and self._addresses[0] != address:  # the others cost time first
            self._addresses = (address, *(other for other in self._addresses if other != address))
        return connection

    def _sweep(self) -> None:
        """Close what has been idle for too long; the connection that was idle first stands first."""
        self._timer = None
        now = self._loop.time()
        for connection, since in tuple(self._idle.items()):
            if now - since < self._seconds:
                self._timer = self._loop.call_at(since + self._seconds, self._sweep)
                return
            connection.abort()
