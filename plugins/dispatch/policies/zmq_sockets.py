"""ZeroMQ as far as KV-cache events need it: sockets with bounds, live messages, and replays of old ones."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, TypeAlias

from plugins.dispatch.policies.kv_stream import read_number

try:
    import zmq
    import zmq.asyncio
except ImportError:  # part of the extra `kv-events`; whoever needs it looks at `MISSING` first
    MISSING = True
else:
    MISSING = False

REPLAY_SECONDS: Final = 5.0
"""How long a worker may take for the next message of a replay."""

WHOLE_REPLAY_SECONDS: Final = 60.0

MESSAGE_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of one frame; a sender of more is hung up on."""

WAITING_LIMIT: Final = 10_000
"""Messages that may wait to be read; what comes in beyond is dropped, and noticed as a gap."""

Take: TypeAlias = Callable[[list[bytes]], Awaitable[None]]
"""Takes the frames of a message."""

_END: Final = -1
_AT_ONCE: Final = 16


class Sockets:
    """The sockets of one policy, which all close together."""

    def __init__(self) -> None:
        self._context = zmq.asyncio.Context()
        self._context.set(zmq.MAX_SOCKETS, self._context.get(zmq.SOCKET_LIMIT))

    def close(self) -> None:
        """Close every socket, whatever waits to be sent."""
        self._context.destroy(linger=0)

    async def listen(self, address: str, take: Take, begin: Callable[[], Awaitable[None]]) -> None:
        """Give each message from an address to `take`; first call `begin`, while messages wait that come in.

        Raises:
            OSError: the address is none; or the connection broke. ZeroMQ would make most of them again, but not one
                on which a frame was too large, and what was sent meanwhile would not be missed until the next message.
        """
        with self._open(zmq.SUB, address) as socket, socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            try:
                socket.connect(address)
            except zmq.ZMQError as error:
                raise OSError(f"{address}: {error}") from None
            reader = asyncio.create_task(_read(socket, take, begin))
            broken = asyncio.ensure_future(monitor.recv_multipart())
            try:
                await asyncio.wait((reader, broken), return_when=asyncio.FIRST_COMPLETED)
            finally:
                reader.cancel()
                broken.cancel()
                await asyncio.gather(reader, broken, return_exceptions=True)
                socket.disable_monitor()
            if not reader.cancelled():
                reader.result()
            raise OSError(f"{address}: the connection broke")

    async def collect(self, address: str, take: Take) -> None:
        """Give each message that comes in at an address of this machine to `take`, for ever.

        Raises:
            OSError: the address cannot be bound.
        """
        with self._open(zmq.SUB, address) as socket:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            try:
                socket.bind(address)
            except zmq.ZMQError as error:
                raise OSError(f"{address}: {error}") from None
            await _read(socket, take)

    async def replay(self, address: str, start: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """The numbers and payloads of the messages from `start` on that a worker still has.

        Raises:
            OSError: it does not answer, or takes too long for all of it.
            WireError: it answers with something else.
        """
        deadline = asyncio.get_running_loop().time() + WHOLE_REPLAY_SECONDS
        with self._open(zmq.DEALER, address) as socket:
            try:
                socket.connect(address)
                async with asyncio.timeout(REPLAY_SECONDS):
                    await socket.send_multipart([b"", start.to_bytes(8)])
                turn = 0
                while asyncio.get_running_loop().time() < deadline:
                    async with asyncio.timeout(REPLAY_SECONDS):
                        frames = await socket.recv_multipart()
                    number = read_number(frames[-2] if len(frames) > 1 else b"")
                    if number == _END:
                        return
                    yield number, frames[-1]
                    turn += 1
                    if turn % _AT_ONCE == 0:
                        await asyncio.sleep(0)
            except zmq.ZMQError as error:
                raise OSError(f"{address}: {error}") from None
        raise TimeoutError(f"{address}: a replay has no end")

    def _open(self, kind: int, address: str) -> "zmq.asyncio.Socket":
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, WAITING_LIMIT)
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_LIMIT)
        if "[" in address:
            socket.setsockopt(zmq.IPV6, 1)
        return socket


async def _read(socket: "zmq.asyncio.Socket", take: Take, begin: Callable[[], Awaitable[None]] | None = None) -> None:
    if begin is not None:
        await begin()
    while True:
        for _ in range(_AT_ONCE):
            await take(await socket.recv_multipart())
        await asyncio.sleep(0)  # what waits already is read without a turn of the event loop
