"""A client and workers that go step by step: nothing is sent before what came before it was dealt with."""

import re
import socket
import threading
from queue import SimpleQueue
from typing import Final

from attrs import define, field, frozen

from bench.bodies import PATH

SECONDS: Final = 60.0
"""How long anything may take on the slowest machine."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_READ_BYTES: Final = 1 << 16


class Wire:
    """A blocking connection, from which whole messages are read."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._read = b""

    def send(self, data: bytes) -> None:
        """Send something in one piece."""
        self._connection.sendall(data)

    def read_until(self, end: bytes) -> bytes:
        """Everything until and with `end`, empty once the other side has closed."""
        while end not in self._read:
            data = self._connection.recv(_READ_BYTES)
            if not data:
                return b""
            self._read += data
        taken, end, self._read = self._read.partition(end)
        return taken + end

    def read_message(self) -> tuple[bytes, bytes]:
        """The head and the body of a message that has a length; both are empty once the other side has closed."""
        head = self.read_until(b"\r\n\r\n")
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0
        while len(self._read) < length:
            self._read += self._connection.recv(_READ_BYTES)
        body, self._read = self._read[:length], self._read[length:]
        return head, body

    def close(self) -> None:
        """Close it."""
        self._connection.close()


@frozen
class Asked:
    """A request that waits at a worker for its answer."""

    wire: Wire

    def answer(self, body: bytes) -> None:
        """Send a whole answer."""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.wire.send(head + body)

    def begin(self) -> None:
        """Send the head of a stream."""
        fields = b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked"
        self.wire.send(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n\r\n")

    def say(self, chunk: bytes) -> None:
        """Send a chunk of a stream; the empty one ends it."""
        self.wire.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))


@define(eq=False)
class Worker:
    """Listens on a port of its own; a GET is answered at once, anything else waits until it is taken."""

    url: str = field(init=False)
    _asked: "SimpleQueue[Asked]" = field(init=False, factory=SimpleQueue)
    _listener: socket.socket = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def take(self) -> Asked:
        """The next request.

        Raises:
            queue.Empty: there is none for `SECONDS`.
        """
        return self._asked.get(timeout=SECONDS)

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(Wire(connection),), daemon=True).start()

    def _serve(self, wire: Wire) -> None:
        try:
            while True:
                head, _ = wire.read_message()
                if head.startswith(b"GET"):
                    Asked(wire).answer(b"{}")
                elif head:
                    self._asked.put(Asked(wire))
                else:
                    return
        except OSError:  # idle for long, or reset
            return
        finally:
            wire.close()


def post(body: bytes) -> bytes:
    """A request to chat completions."""
    fields = b"host: 127.0.0.1\r\nuser-agent: bench\r\naccept: */*\r\ncontent-type: application/json"
    return b"POST %b HTTP/1.1\r\n%b\r\ncontent-length: %d\r\n\r\n" % (PATH.encode(), fields, len(body)) + body
