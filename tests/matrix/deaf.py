"""A worker that neither accepts a connection nor refuses it, as a host that is overloaded or cut off does."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from plugins.dispatch.embedded.stub import Stub
from tests.matrix.world import until

_ASKED = "02"
"""The state in /proc/net/tcp of a connection that was asked for and not answered."""


@asynccontextmanager
async def deaf(stub: Stub) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Be deaf for the length of a block; what is given returns when somebody tries to connect.

    The queue of a socket that nobody accepts from is filled, and the system then drops what asks for more.
    """
    stub.add_fault("refuse")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", stub.port))
        listener.listen(0)
        waiting = 0
        while not waiting:
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(("127.0.0.1", stub.port))
            waiting = _waiting(stub.port)

        async def asked() -> None:
            await until(lambda: _waiting(stub.port) > waiting)

        try:
            yield asked
        finally:
            stack.close()
            stub.clear_faults()


def _waiting(port: int) -> int:
    """How many wait for an answer to their wish to connect."""
    return Path("/proc/net/tcp").read_text().count(f" 0100007F:{port:04X} {_ASKED} ")
