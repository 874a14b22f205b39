"""What a request's cycle writes to in place of the transport."""

import asyncio
from collections.abc import Callable

from attrs import define, field

_JOINED = 64 * 1024
"""Bytes of a body up to which it is copied behind its head; copying more costs as much as another packet."""


@define(eq=False)
class Outlet:
    """Holds the head of an answer back until its first bytes come, or the event loop turns: both are one packet then.

    Closing is left to the protocol, which may linger.
    """

    transport: asyncio.Transport
    close: Callable[[], None]
    loop: asyncio.AbstractEventLoop
    _head: bytes = field(default=b"", init=False)
    _expects: bool = field(default=False, init=False)

    def expect_head(self) -> None:
        """Take the next thing that is written for the head of an answer."""
        self._expects = True

    def hold(self, head: bytes) -> None:
        """Hold the head of an answer back until its body comes, which is about to."""
        self._expects = False
        self._head = head

    def write(self, data: bytes) -> None:
        """Write something, behind what was held back."""
        if self._expects:
            self._expects = False
            self._head = data
            self.loop.call_soon(self.flush)
        elif self._head:
            head, self._head = self._head, b""
            if len(data) <= _JOINED:
                self.transport.write(head + data)
            else:
                self.transport.writelines((head, data))
        else:
            self.transport.write(data)

    def flush(self) -> None:
        """Write what was held back."""
        if self._head:
            head, self._head = self._head, b""
            if not self.transport.is_closing():
                self.transport.write(head)

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self.transport.is_closing()
