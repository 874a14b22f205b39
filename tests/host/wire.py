"""Raw HTTP/1.1 over a socket, and waiting with a deadline."""

import contextlib
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from attrs import define, frozen

T = TypeVar("T")

DEADLINE_SECONDS = 20.0


def until(condition: Callable[[], T | None], what: str = "the condition", seconds: float = DEADLINE_SECONDS) -> T:
    """Wait until `condition` gives something true, and return it; its own errors count as not yet."""
    deadline = time.monotonic() + seconds
    error: BaseException | None = None
    while time.monotonic() < deadline:
        try:
            if result := condition():
                return result
        except (OSError, AssertionError, ValueError, KeyError, IndexError) as caught:
            error = caught
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come about within {seconds:g} s") from error


@frozen
class Answer:
    """One HTTP answer, or what there is of it."""

    status: int
    headers: dict[str, str]
    body: bytes


@define(eq=False)
class Client:
    """A raw connection."""

    connection: socket.socket
    data: bytes = b""
    ended: bool = False

    @classmethod
    def to(cls, address: tuple[str, int]) -> "Client":
        """Connect."""
        return cls(socket.create_connection(address, timeout=DEADLINE_SECONDS))

    def send(self, *parts: bytes) -> "Client":
        """Send parts, each in a write of its own; the other side may have closed already."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                self.connection.sendall(part)
        return self

    def end(self) -> "Client":
        """End this side alone."""
        self.connection.shutdown(socket.SHUT_WR)
        return self

    def read_until(self, mark: bytes) -> bytes:
        """Read until `mark` was seen; returns everything so far."""
        while mark not in self.data and not self.ended:
            self._read()
        assert mark in self.data, self.data
        return self.data

    def read_all(self) -> bytes:
        """Read to the end of the connection."""
        while not self.ended:
            self._read()
        self.connection.close()
        return self.data

    def answers(self) -> list[Answer]:
        """Read to the end of the connection and take it apart."""
        return parse_answers(self.read_all())

    def _read(self) -> None:
        part = self.connection.recv(65536)
        self.data += part
        self.ended = not part


def parse_answers(data: bytes) -> list[Answer]:
    """Every whole answer in `data`; what cannot be read as one fails."""
    answers = []
    while data:
        head, mark, data = data.partition(b"\r\n\r\n")
        assert mark, head
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if first.startswith("HTTP/1.1 100"):
            continue
        body, data = _body(headers, data)
        answers.append(Answer(int(first.split()[1]), headers, body))
    return answers


def _body(headers: dict[str, str], data: bytes) -> tuple[bytes, bytes]:
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while True:
            size, mark, data = data.partition(b"\r\n")
            assert mark, size
            length = int(size, 16)
            chunk, data = data[:length], data[length + 2 :]
            body += chunk
            if not length:
                return body, data
    if "content-length" not in headers and headers.get("connection") == "close":
        return data, b""
    length = int(headers.get("content-length", "0"))
    assert len(data) >= length, data
    return data[:length], data[length:]


def request(path: str, body: bytes = b"", *headers: str, method: str = "POST") -> bytes:
    """A well-formed request."""
    lines = [f"{method} {path} HTTP/1.1", "host: test", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
