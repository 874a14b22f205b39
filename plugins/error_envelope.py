"""Turns whatever went wrong further in into an answer in the API's shape, and counts it."""

from collections.abc import Callable
from functools import partial
from typing import Final, Literal

import orjson
from attrs import frozen
from structlog.stdlib import get_logger

from kernel import (
    CLIENT_GONE,
    COMPLETED,
    BytesReply,
    ClientGone,
    Exchange,
    Outcome,
    PluginSpec,
    Rejection,
    Reply,
    StreamReply,
)
from plugins.endpoints import ANTHROPIC, dialect_for
from plugins.envelopes import (
    anthropic_error,
    openai_error,
    rejection_of,
    status_of,
    trtllm_anthropic_error,
    trtllm_error,
)
from plugins.hooks import Hooks
from plugins.metrics import ERRORS, HTTP_EXCEPTIONS, IN_FLIGHT, INTERNAL_ERRORS, REQUESTS, child
from plugins.slots import SERVED, InvalidRequest, WorkerRejection
from plugins.tallies import Cell, cell_of

GONE_STATUS: Final = 499
"""Counted for a request that nobody was answered: its client left, or its task was cancelled."""

log = get_logger()


class _InFlight(dict[str, tuple[Cell, Callable[[], None]]]):
    """By the endpoint's name: the number of its requests, and what takes one off."""

    def __missing__(self, endpoint: str) -> tuple[Cell, Callable[[], None]]:
        gauge = child(IN_FLIGHT, endpoint)
        found = self[endpoint] = cell_of(gauge), gauge.dec
        return found


class _Ended(dict[tuple[str, str, int], Cell]):
    """By endpoint, model and status: the number of requests that ended so."""

    def __missing__(self, labels: tuple[str, str, int]) -> Cell:
        found = self[labels] = cell_of(child(REQUESTS, *map(str, labels)))
        return found


_in_flight: Final = _InFlight()
_ended: Final = _Ended()


@frozen
class ErrorEnvelope(Hooks):
    """Answer rejections and faults in the API's error shape, and count requests by how they ended.

    `envelope`: `openai` for the error object of the API's home, OpenAI's or Anthropic's; `trtllm` for the shapes of
    TensorRT-LLM's disaggregated frontend. Anthropic's clients get the request's id under their own header as well.
    """

    envelope: Literal["openai", "trtllm"] = "openai"

    def on_request(self, exchange: Exchange) -> None:
        """Count the request as one in flight."""
        count, leave = _in_flight[exchange.endpoint.name]
        count[0] += 1
        exchange.resources.push(leave)

    def on_error(self, exchange: Exchange, error: BaseException) -> Reply | None:
        """Make a reply of an exception. A client that left gets none."""
        if isinstance(error, ClientGone) or not isinstance(error, Exception):
            _count(exchange, GONE_STATUS, "client_gone" if isinstance(error, ClientGone) else "cancelled")
            return None
        _record(exchange, error)
        reply = self._answer(exchange, rejection_of(error))
        _count(exchange, reply.status, _class_of(error))
        return reply

    def on_reply(self, exchange: Exchange, reply: Reply) -> Reply:
        """Count what is answered, a stream when it has ended."""
        if dialect_for(exchange) == ANTHROPIC:
            reply.headers.append((b"request-id", exchange.id.encode()))
        if reply.__class__ is StreamReply:
            reply.attach(end=partial(_end, exchange, reply.status))
        else:
            _count(exchange, reply.status, None)
        return reply

    def _answer(self, exchange: Exchange, rejection: Rejection) -> BytesReply:
        dialect = dialect_for(exchange)
        headers = [(b"content-type", b"application/json"), *rejection.raw_headers]
        if dialect == ANTHROPIC:
            headers.append((b"request-id", exchange.id.encode()))
            own = self.envelope == "openai"
            shape = anthropic_error(rejection, exchange.id) if own else trtllm_anthropic_error(rejection)
        else:
            shape = openai_error(rejection) if self.envelope == "openai" else trtllm_error(rejection)
        return BytesReply(orjson.dumps(shape), status_of(rejection, dialect), headers)


def _end(exchange: Exchange, status: int, outcome: Outcome) -> None:
    """Count a stream when it has ended."""
    error = outcome.error
    if outcome.name == COMPLETED:
        _count(exchange, status, None)
    elif outcome.name == CLIENT_GONE or error is None:
        _count(exchange, GONE_STATUS, "client_gone")
    elif not isinstance(error, Exception):
        _count(exchange, status, "cancelled")
    else:
        _record(exchange, error, outcome.plugin)
        _count(exchange, status, _class_of(error))


def _record(exchange: Exchange, error: Exception, plugin: str | None = None) -> None:
    """Count the failure under its name in TensorRT-LLM's frontend; a fault is logged where it is handled."""
    if isinstance(error, InvalidRequest):
        return  # counted by the plugin that found it, as a validation exception
    if isinstance(error, Rejection):
        HTTP_EXCEPTIONS.inc()
        return
    INTERNAL_ERRORS.inc()
    log.error(
        "plugin.failed",
        plugin=plugin or exchange.culprit(error),
        endpoint=exchange.endpoint.name,
        request_id=exchange.id,
        exc_info=error,
    )


def _class_of(error: Exception) -> str:
    match error:
        case InvalidRequest():
            return "invalid_request"
        case WorkerRejection():
            return "worker"
        case Rejection():
            return "rejected"
        case _:
            return "internal"


def _count(exchange: Exchange, status: int, error: str | None) -> None:
    served = exchange.get(SERVED)
    endpoint, model = exchange.endpoint.name, served.model if served is not None else "other"
    _ended[endpoint, model, status][0] += 1
    if error is not None:
        child(ERRORS, endpoint, model, error).inc()


PLUGIN = PluginSpec("error_envelope", ErrorEnvelope)
