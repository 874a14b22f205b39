"""Writes one structured line for each request, after its last byte, whatever its ending."""

from time import monotonic

from attrs import define, frozen
from structlog.stdlib import get_logger

from kernel import (
    CLIENT_GONE,
    COMPLETED,
    FAILED,
    CallNext,
    ClientGone,
    Exchange,
    Outcome,
    PluginSpec,
    Rejection,
    Reply,
    StreamReply,
)
from plugins.slots import CONVERSATION, SERVED, STREAM, TIMING, TRACE

GONE_STATUS = 499
CANCELLED = "cancelled"
REJECTED = "rejected"

_log = get_logger()


@define(eq=False)
class _Line:
    """What is said of one request at its end."""

    exchange: Exchange
    status: int = GONE_STATUS
    outcome: str | None = CANCELLED
    """That of a whole answer follows from its status."""

    def ended(self, outcome: Outcome) -> None:
        """A stream ended; its status went out when it began."""
        self.outcome = outcome.name
        if outcome.name == CLIENT_GONE or isinstance(self.exchange.reason, ClientGone):
            self.status, self.outcome = GONE_STATUS, CLIENT_GONE
        elif outcome.error is not None and not isinstance(outcome.error, Exception):
            self.outcome = CANCELLED

    def write(self) -> None:
        """Log the line; faults and 5xx as warnings."""
        exchange, status = self.exchange, self.status
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


@frozen
class AccessLog:
    """Log one line `request.finished` for each request: endpoint, status, outcome, seconds, model, workers, attempts.

    No header, no body and no conversation id is logged. A client that left is logged with status 499, and so
    is a request that was cancelled before its answer. With `trace_span` the line has the trace's id.
    """

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        """Pass the reply on and log when everything that the exchange held was given back."""
        line = _Line(exchange)
        exchange.resources.push(line.write)
        try:
            reply = await call_next(exchange)
        except ClientGone:
            line.outcome = CLIENT_GONE
            raise
        except Exception as error:
            line.status, line.outcome = error.status if isinstance(error, Rejection) else 500, None
            raise
        line.status, line.outcome = reply.status, None
        if reply.__class__ is StreamReply:
            reply.attach(end=line.ended)
        return reply


PLUGIN = PluginSpec("access_log", AccessLog, fail_open=True)
