"""The HTTP/1.1 protocol of the host: what is malformed or cut short gets an answer, and nothing after it is parsed."""

import asyncio
import sys
from typing import Any, Final

import orjson
from structlog.stdlib import get_logger
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from kernel import TRUNCATED, Rejection
from plugins.envelopes import openai_error
from plugins.host.head import HeadTooLarge
from plugins.host.idle import NEVER
from plugins.host.writing import WritingProtocol

LINGER_SECONDS: Final = 5.0
"""How long what a client still sends is read and dropped after its answer is complete.

A socket that is closed with unread data resets the connection, and the answer may be lost on its way.
"""

TRUNCATED_SECONDS: Final = 30.0
"""How long an application may take to answer a request that was cut short before it is cut off itself."""

log = get_logger()


class KernelProtocol(WritingProtocol):
    """One connection of a client."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lingers = False  # the last answer is out, and what the client still sends is dropped
        self._half_open = False  # the client has ended its side
        self._refusal: str | None = None  # what a 400 says once the answers before it are out
        self._expiry: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        if self._expiry is not None:
            self._expiry.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection as soon as nothing is being answered on it."""
        if self._lingers:
            self.transport.close()
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        """Go on to the next request of the connection, or refuse the malformed one that came next."""
        self.server_state.total_requests += 1
        if self._lingers or self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start(self.pipeline.popleft())
            return
        due = self._due = self.loop.time() + self.timeout_keep_alive
        if due < self._timer_due:
            self._set_timer(due)
        if self._refusal is not None:
            self._refuse(self._refusal)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer a client that ends its side in the middle of a request; after a whole one it has hung up."""
        self._half_open = True
        if self._deaf:
            return None
        if self.is_idle():
            if self.has_half_a_head():
                self.send_400_response("the request ended in the middle of its headers")
            return None
        cycle = self.cycle
        if not cycle.more_body or cycle.response_started or self._is_queued():
            return None
        cycle.scope["state"][TRUNCATED] = True
        cycle.keep_alive = False
        cycle.tell()
        self._expiry = self.loop.call_later(TRUNCATED_SECONDS, self._cut_unanswered)
        return True

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request, after the answers to those before it."""
        if self._deaf:
            return
        self._deaf = True
        error = sys.exception()
        cause = error.__context__ or error if error is not None else None  # what a callback of the parser raised
        if cause is not None:
            msg = str(cause) if isinstance(cause, HeadTooLarge) else "the request is not valid HTTP"
        log.info("request.malformed", reason=str(cause or msg)[:200])
        cycle = self.cycle
        if self.is_idle():
            # a request with its answer: malformed is the rest of its body
            if cycle is not None and cycle.more_body:  # type: ignore[redundant-expr]
                self._linger()
            else:
                self._refuse(msg)
        elif not cycle.more_body:
            self._refusal = msg
        elif self._is_queued():
            self.pipeline.pop()
            self._refusal = msg
        elif cycle.response_started:
            cycle.keep_alive = False
        else:
            cycle.disconnected = True
            cycle.tell()
            self._refuse(msg)

    def _is_queued(self) -> bool:
        """Whether the latest request waits for the answers to earlier ones."""
        return self.cycle in self.pipeline

    def _refuse(self, message: str) -> None:
        self._refusal = None
        if self.transport.is_closing():
            return
        body = orjson.dumps(openai_error(Rejection(400, message, "malformed_request")))
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        head = b"".join(b"%b: %b\r\n" % pair for pair in fields)
        self.transport.write(STATUS_LINE[400] + head + b"\r\n" + body)
        self._linger()

    def close(self) -> None:
        """Close after an answer; one that was given before all of its request came must not be lost."""
        self._flush()
        if self.cycle.response_complete and self.cycle.more_body:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self._flush()
        if self._half_open or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._deaf = self._lingers = True
        self._due = NEVER
        self.transport.write_eof()
        self.flow.resume_reading()
        self._expiry = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _flush(self) -> None:
        if self._running is not None:
            self._running.flush()

    def _cut_unanswered(self) -> None:
        if not self.cycle.response_started:
            self.transport.abort()


def patient(write_seconds: float) -> type[KernelProtocol]:
    """The protocol that waits so long for a client that takes nothing."""
    return type(KernelProtocol.__name__, (KernelProtocol,), {"write_seconds": write_seconds})
