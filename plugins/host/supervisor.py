"""Several processes on one port: starts them, passes signals on, replaces what dies, and ends them all."""

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.host.child import Child
from plugins.host.server import INTERRUPT_SECONDS, STOP_SECONDS
from plugins.host.shared import Shared, sharing
from plugins.host.terminal import Terminal

MAXIMUM_FAILURES: Final = 5
"""So many starts in a row may fail while nothing serves."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

log = get_logger()


@define(eq=False)
class Supervisor:
    """Runs `count` processes that serve `listener`, each called with `arguments`; `on_ready` hears that all serve."""

    listener: socket.socket
    arguments: Sequence[str]
    count: int
    grace_seconds: float
    on_ready: Callable[[], None]
    _terminal: Terminal = field(factory=Terminal, init=False)
    _children: list[Child] = field(factory=list, init=False)
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector, init=False)
    _shared: Shared = field(init=False)
    _announced: bool = field(default=False, init=False)
    _served: bool = field(default=False, init=False)
    _deadline: float | None = field(default=None, init=False)  # while stopping: when to use force
    _code: int = field(default=0, init=False)

    def run(self) -> int:
        """Serve until a signal says to stop; returns the exit code."""
        with ExitStack() as stack:
            self._shared = stack.enter_context(sharing(self.count))
            stack.enter_context(self._signals())
            stack.callback(self._kill)
            self._children = [Child() for _ in range(self.count)]
            while self._deadline is None or any(child.process for child in self._children):
                for number in self._wait():
                    if not self._handle(number):
                        return 1
                self._reap()
                if self._deadline is None:
                    self._start_due()
                elif time.monotonic() > self._deadline:
                    log.error("processes.killed")
                    return 1
        return self._code

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Have signals wake the selector."""
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.settimeout(0)
        self._selector.register(reader, selectors.EVENT_READ)
        wakeup = signal.set_wakeup_fd(writer.fileno())
        before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            self._selector.close()
            reader.close()
            writer.close()

    def _wait(self) -> list[int]:
        """The signals that came, after at most a second; takes what children say on the way."""
        due = [child.due for child in self._children if child.process is None and self._deadline is None]
        timeout = max(0.0, min((moment - time.monotonic() for moment in due), default=1.0))
        numbers: list[int] = []
        for key, _ in self._selector.select(min(timeout, 1.0)):
            if not isinstance(key.data, Child):
                numbers += os.read(key.fd, 4096)
            elif key.data.hears():
                self._served = self._served or key.data.serves
            else:
                self._selector.unregister(key.fileobj)
        if not self._announced and self._children and all(child.ready for child in self._children):
            self._announced = True
            self.on_ready()
        return numbers

    def _handle(self, number: int) -> bool:
        """Act on a signal; False is to end at once."""
        match number:
            case signal.SIGHUP if self._terminal.is_lost():
                return self._handle(signal.SIGTERM)
            case signal.SIGHUP:
                # one that only starts would die of it, and reads the new configuration anyway
                self._send(signal.SIGHUP, [child for child in self._children if child.serves])
            case signal.SIGTERM | signal.SIGINT if self._deadline is not None:
                return False
            case signal.SIGTERM | signal.SIGINT:
                self._stop()
        return True

    def _stop(self) -> None:
        self.listener.close()
        self._send(signal.SIGTERM, self._children)
        self._deadline = time.monotonic() + self.grace_seconds + 3 * INTERRUPT_SECONDS + STOP_SECONDS

    def _send(self, number: signal.Signals, children: Sequence[Child]) -> None:
        for child in children:
            if child.process is not None:
                child.process.send_signal(number)

    def _start_due(self) -> None:
        for child in self._children:
            if child.process is None and child.due <= time.monotonic():
                self._start(child)

    def _start(self, child: Child) -> None:
        environment = self._shared.environment(self._children.index(child))
        try:
            link = child.start(self.arguments, self.listener, environment, self._shared.descriptors)
        except OSError as error:
            child.clear(time.monotonic())
            log.error("process.unstarted", error=str(error))  # noqa: TRY400
            self._give_up_on(child)
            return
        self._selector.register(link, selectors.EVENT_READ, child)

    def _reap(self) -> None:
        for place, child in enumerate(self._children):
            if child.process is None or (code := child.process.poll()) is None:
                continue
            pid, served = child.process.pid, child.serves
            self._shared.forget(place, pid)
            if child.link is not None:
                with suppress(KeyError):
                    self._selector.unregister(child.link)
            child.clear(time.monotonic())
            if self._deadline is not None:
                self._code = max(self._code, int(code != 0))
                continue
            log.error("process.died", pid=pid, code=code, served=served)
            self._give_up_on(child)

    def _give_up_on(self, child: Child) -> None:
        """Stop everything if processes do not come up and nothing serves."""
        serving = any(other.serves for other in self._children)
        if not serving and child.failures >= (MAXIMUM_FAILURES if self._served else 1):
            log.error("processes.given_up")
            self._stop()
            self._code = 1

    def _kill(self) -> None:
        """Leave no process behind."""
        self._send(signal.SIGKILL, self._children)
        for child in self._children:
            if child.process is not None:
                child.process.wait()
