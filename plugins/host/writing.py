"""The part of the HTTP/1.1 protocol that bounds how long a client may take nothing of its answer."""

import asyncio

from structlog.stdlib import get_logger

from plugins.host.head import HeadProtocol

log = get_logger()


class WritingProtocol(HeadProtocol):
    """Drops a client whose answer has filled every buffer, and that reads nothing of it for `write_seconds`."""

    write_seconds: float = 60.0
    _stuck: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """Have the answer wait for its client, and see how long."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        self._relax()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        self._relax()
        super().connection_lost(exc)

    def _wait(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(self.write_seconds, self._look, left)

    def _look(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._wait()
        else:
            log.info("client.stuck", seconds=self.write_seconds)
            self.transport.abort()

    def _relax(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
