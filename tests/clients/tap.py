"""A relay that notes every request that passes it and how it was answered, also those that no log of the kernel has."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Final
from urllib.parse import urlsplit

from attrs import define, field

# nobody sends a request before the answer to the one before: a head is always at the beginning of what comes
_REQUEST: Final = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.1\r\n")
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")


@define
class Exchange:
    """A request's line, and the status of its answer, 0 while there is none."""

    method: str
    target: str
    status: int = 0


@define(eq=False)
class Tap:
    """Where clients connect to, and what they have asked."""

    url: str
    seen: list[Exchange] = field(factory=list)

    def statuses(self) -> dict[str, set[int]]:
        """The statuses that each method and target got."""
        found: dict[str, set[int]] = {}
        for exchange in self.seen:
            found.setdefault(f"{exchange.method} {exchange.target}", set()).add(exchange.status)
        return found


def _carry(source: socket.socket, target: socket.socket, note: "Note") -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            note.take(data)
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@define(eq=False)
class Note:
    """What one connection has asked last."""

    seen: list[Exchange]
    last: Exchange | None = None

    def take(self, data: bytes) -> None:
        """Note the head of a request or an answer, if one begins here."""
        if found := _REQUEST.match(data):
            self.last = Exchange(found[1].decode(), found[2].decode())
            self.seen.append(self.last)
        elif self.last is not None and (found := _STATUS.match(data)):
            self.last.status = int(found[1])


@contextmanager
def tapped(url: str) -> Iterator[Tap]:
    """A tap before a server."""
    parts = urlsplit(url)
    seen: list[Exchange] = []

    class Handler(BaseRequestHandler):
        """Carries both directions of one connection, and ends both when one ends."""

        def handle(self) -> None:
            """Carry until an end."""
            note = Note(seen)
            with socket.create_connection((str(parts.hostname), int(parts.port or 80))) as server:
                back = threading.Thread(target=_carry, args=(server, self.request, note), daemon=True)
                back.start()
                _carry(self.request, server, note)
                back.join()

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield Tap(f"http://127.0.0.1:{listener.server_address[1]}", seen)
        finally:
            listener.shutdown()
            thread.join()
