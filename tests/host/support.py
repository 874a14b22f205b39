"""A server in a thread of the test's own process, which serves the plugin of `terminal.py`."""

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define

from kernel import Runtime, build_app
from plugins.configuration import Document
from plugins.host.listener import bind
from plugins.host.protocol import KernelProtocol
from plugins.host.routes import build_routes
from plugins.host.server import Hooks, KernelServer, build_config
from tests.host.terminal import ENDPOINTS, STANDARD
from tests.host.wire import DEADLINE_SECONDS, Client


@define(eq=False)
class Served:
    """A server in a thread of this process."""

    address: tuple[str, int]
    server: KernelServer
    loop: asyncio.AbstractEventLoop | None = None
    error: BaseException | None = None

    def client(self) -> Client:
        """A new connection to it."""
        return Client.to(self.address)

    def connection(self) -> KernelProtocol:
        """The server's end of the only connection."""
        (connection,) = tuple(self.server.server_state.connections)
        assert isinstance(connection, KernelProtocol)
        return connection

    def call(self, work: Callable[[], object]) -> None:
        """Do something in the server's own thread."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(work)


@contextmanager
def serving(
    text: str = "",
    loop: str = "auto",
    http: Any = KernelProtocol,
    grace_seconds: float = 5.0,
    listener: socket.socket | None = None,
) -> Iterator[Served]:
    """Serve the terminal plugin in a thread, and stop it afterwards."""
    listener = listener or bind("127.0.0.1", 0)
    runtime = Runtime(STANDARD, lambda: Document.parse(text, "test.yaml"))
    config = build_config(build_app(runtime, build_routes(ENDPOINTS)), 5.0, http)
    config.loop = loop
    started = threading.Event()
    served = Served(listener.getsockname(), KernelServer(config, runtime, grace_seconds, Hooks(ready=started.set)))
    thresholds = gc.get_threshold()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                served.loop = runner.get_loop()
                runner.run(served.server.serve([listener]))
        except BaseException as error:
            served.error = error
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(DEADLINE_SECONDS)
        if served.error is not None:
            raise served.error
        yield served
    finally:
        served.server.should_exit = True
        thread.join(DEADLINE_SECONDS)
        listener.close()
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    assert not thread.is_alive()
