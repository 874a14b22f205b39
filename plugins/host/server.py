"""uvicorn's server with our endings: signals, an orderly shutdown in bounded steps, and an exit code."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from attrs import frozen
from structlog.stdlib import get_logger
from uvicorn import Config, Server
from uvicorn.server import HANDLED_SIGNALS

from kernel import KernelMiddleware, Rejection, Runtime
from plugins.host import memory
from plugins.host.lifespan import Lifespan
from plugins.host.listener import bound_address, refusal
from plugins.host.protocol import KernelProtocol
from plugins.host.terminal import Terminal

INTERRUPT_SECONDS: Final = 3.0
"""How long an interrupted request may take to send its last words before it is cut."""

STOP_SECONDS: Final = 10.0
"""How long plugins may take to stop."""

TICK_SECONDS: Final = 0.05

SHUTTING_DOWN: Final = "the server is shutting down"

log = get_logger()


def build_config(
    app: KernelMiddleware, keep_alive_seconds: float, http: type[asyncio.Protocol] | str = KernelProtocol
) -> Config:
    """The configuration of uvicorn; `http` is the protocol, its own `h11` works as well."""
    config = Config(
        app,
        loop="auto",
        http=http,
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        workers=1,
        timeout_keep_alive=keep_alive_seconds,  # type: ignore[arg-type]
    )
    config.load()
    config.lifespan_class = Lifespan
    return config


def _nothing() -> None:
    pass


@frozen(kw_only=True)
class Hooks:
    """What is called when the server listens, once requests can be served, for each SIGHUP, and at the end.

    `stop` comes before requests are let finish, `kill` before the process ends at once.
    """

    start: Callable[[], None] = _nothing
    ready: Callable[[], None] = _nothing
    hangup: Callable[[], None] = _nothing
    stop: Callable[[], None] = _nothing
    kill: Callable[[], None] = _nothing


class KernelServer(Server):
    """Serves one application in this process until a signal ends it."""

    def __init__(self, config: Config, runtime: Runtime, grace_seconds: float, hooks: Hooks | None = None) -> None:
        super().__init__(config)
        self.stopped_well = True
        self._runtime = runtime
        self._grace_seconds = grace_seconds
        self._hooks = hooks or Hooks()
        self._told_ready = False
        self._terminal = Terminal()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen.

        Raises:
            Failure: another process listens on the address since it was bound.
        """
        await self.lifespan.startup()
        for listener in sockets or ():
            try:
                listener.listen(self.config.backlog)  # uvloop does not tell when it cannot
            except OSError as error:
                await self.lifespan.shutdown()
                raise refusal(error, bound_address(listener)) from None
        await super().startup(sockets)
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        self._hooks.start()
        memory.settle()

    async def on_tick(self, counter: int) -> bool:
        """Say once that requests can be served."""
        if not self._told_ready and not self._runtime.unready():
            self._told_ready = True
            self._hooks.ready()
        return await super().on_tick(counter)

    def _hang_up(self) -> None:
        if self._terminal.is_lost():
            self.should_exit = True
        elif not self.should_exit:
            self._hooks.hangup()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        """Begin to stop at the first signal, end at once at the second."""
        if self.should_exit:
            self._hooks.kill()
            os._exit(1)
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving; they are not raised again afterwards, as a stop on demand is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let what runs finish, interrupt it, cut it, and stop the plugins, each for a bounded time."""
        log.info("server.stopping", requests=len(self.server_state.tasks), grace_seconds=self._grace_seconds)
        self._hooks.stop()
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        if not await self._drain(self._grace_seconds):
            log.warning("requests.interrupted", requests=len(self.server_state.tasks))
            reason = Rejection(503, SHUTTING_DOWN, "shutting_down")
            if not await self._drain(INTERRUPT_SECONDS, reason):
                await self._cut()
        try:
            await asyncio.wait_for(self.lifespan.shutdown(), STOP_SECONDS)
        except TimeoutError:
            log.error("plugins.stop_timeout", seconds=STOP_SECONDS)  # noqa: TRY400
            self.stopped_well = False
        if self.lifespan.should_exit:
            log.error("plugins.stop_failed", exc_info=self.lifespan.error)
            self.stopped_well = False
        log.info("server.stopped")

    async def _drain(self, seconds: float, reason: Rejection | None = None) -> bool:
        """Wait until nothing is being served; with a `reason` interrupt what is, also what only begins now."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            if reason is not None:
                self._runtime.interrupt(reason)
            for connection in tuple(self.server_state.connections):
                connection.shutdown()
            if not self.server_state.connections and not self.server_state.tasks:
                return True
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(TICK_SECONDS)

    async def _cut(self) -> None:
        tasks = tuple(self.server_state.tasks)
        log.error("requests.cut", requests=len(tasks))
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=INTERRUPT_SECONDS)
