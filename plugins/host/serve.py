"""One process that serves: the runtime, its application and server, its state file and its reloads, put together."""

import os
import socket
from collections.abc import Callable

from attrs import frozen
from structlog.stdlib import get_logger

from kernel import Runtime, Standard, build_app
from plugins import STANDARD
from plugins.configuration import Settings
from plugins.host.child import SERVES, Link
from plugins.host.instance import Record, State
from plugins.host.listener import bound_address
from plugins.host.protocol import patient
from plugins.host.routes import build_routes
from plugins.host.server import Hooks, KernelServer, build_config
from plugins.host.source import Reloader, Source

log = get_logger()


@frozen
class Service:
    """What a process serves: a configuration on a bound socket; `settings` has what the command line overrides."""

    source: Source
    settings: Settings
    listener: socket.socket
    standard: Standard = STANDARD

    def run(self, on_ready: Callable[[], None], link: Link | None = None) -> int:
        """Serve until a signal says to stop; returns the exit code.

        Raises:
            ConfigError: the configuration cannot be used, or a plugin did not start.
            Failure: another process listens on the address since it was bound.
        """
        address = bound_address(self.listener)
        parent = os.getppid() if link is not None else None
        record = Record(State.of_this_process(address, self.source.path, parent=parent))
        runtime = Runtime(self.standard, self.source.load)
        reloader = Reloader(self.source, runtime, record, self.source.load().settings())

        def start() -> None:
            if link is not None:  # before anyone can find this process and ask for a reload
                link.tell(SERVES)
            record.open()
            reloader.watch()
            log.info("server.started", listen=address, pid=record.state.pid)

        app = build_app(runtime, build_routes(self.standard.endpoints))
        server = KernelServer(
            build_config(app, self.settings.keep_alive_seconds, patient(self.settings.client_write_seconds)),
            runtime,
            self.settings.grace_seconds,
            Hooks(start=start, ready=on_ready, hangup=reloader.hang_up, stop=reloader.close, kill=record.remove),
        )
        try:
            server.run(sockets=[self.listener])
        finally:
            record.remove()
        return 0 if server.stopped_well else 1
