"""Writes one structured line for each request, after its last byte, whatever its ending."""

from functools import partial
from time import monotonic
from typing import Final

from attrs import define, frozen
from structlog.stdlib import get_logger

from kernel import (
    CLIENT_GONE,
    COMPLETED,
    FAILED,
    ClientGone,
    Exchange,
    Outcome,
    PluginSpec,
    Rejection,
    Reply,
    Slot,
    StreamReply,
)
from plugins.hooks import Hooks
from plugins.slots import CONVERSATION, SERVED, STREAM, TIMING, TRACE

GONE_STATUS = 499
CANCELLED = "cancelled"
REJECTED = "rejected"

_log = get_logger()


@define(eq=False)
class _Line:
    """What is said of one request at its end."""

    status: int = GONE_STATUS
    outcome: str | None = CANCELLED
    """That of a whole answer follows from its status."""

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        """A stream ended; its status went out when it began."""
        self.outcome = outcome.name
        if outcome.name == CLIENT_GONE or isinstance(exchange.reason, ClientGone):
            self.status, self.outcome = GONE_STATUS, CLIENT_GONE
        elif outcome.error is not None and not isinstance(outcome.error, Exception):
            self.outcome = CANCELLED

    def write(self, exchange: Exchange) -> None:
        """Log the line; faults and 5xx as warnings."""
        status = self.status
        outcome = self.outcome or (COMPLETED if status < 400 else REJECTED if status < 500 else FAILED)
        client, get = exchange.scope.get("client"), exchange.get
        values: dict[str, object] = {
            "endpoint": exchange.endpoint.name,
            "status": status,
            "outcome": outcome,
            "seconds": round((monotonic() - exchange.arrived) * 1e6) / 1e6,
            "request_id": exchange.id,
            "client": client[0] if client else None,
        }
        stream, served, timing = get(STREAM), get(SERVED), get(TIMING)
        if stream is not None:
            values["stream"] = stream
        if served is not None:
            values["model"], values["engine"], values["workers"] = served.model, served.engine, served.workers
            values["attempts"] = served.attempts
            if served.request_id not in (None, exchange.id):
                values["worker_request_id"] = served.request_id
        if timing is not None and timing.answered is not None:
            values["first_byte_seconds"] = round((timing.answered - timing.arrived) * 1e6) / 1e6
        conversation, trace = get(CONVERSATION), get(TRACE)
        if conversation is not None:
            values["conversation_from"] = conversation.source
        if trace is not None:
            values["trace_id"] = dict(trace).get("traceparent", "")[3:35]
        log = _log.bind()  # else it is looked up in several steps
        if status >= 500 or outcome == FAILED:
            log.warning("request.finished", **values)
        else:
            log.info("request.finished", **values)


_LINE: Final = Slot[_Line]("access_log_line")


@frozen
class AccessLog(Hooks):
    """Log one line `request.finished` for each request: endpoint, status, outcome, seconds, model, workers, attempts.

    No header, no body and no conversation id is logged. A client that left is logged with status 499, and so
    is a request that was cancelled before its answer. With `trace_span` the line has the trace's id.
    """

    def on_request(self, exchange: Exchange) -> None:
        """Have a line logged when everything that the exchange held was given back."""
        line = exchange[_LINE] = _Line()
        exchange.resources.push(partial(line.write, exchange))

    def on_error(self, exchange: Exchange, error: BaseException) -> None:
        """Note what went wrong."""
        line = exchange[_LINE]
        if isinstance(error, ClientGone):
            line.outcome = CLIENT_GONE
        elif isinstance(error, Exception):
            line.status, line.outcome = error.status if isinstance(error, Rejection) else 500, None

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Note what is answered."""
        line = exchange[_LINE]
        line.status, line.outcome = reply.status, None
        if reply.__class__ is StreamReply:
            reply.attach(end=partial(line.ended, exchange))
        return reply


PLUGIN = PluginSpec("access_log", AccessLog, fail_open=True)
