"""Handoffs that were made and not sent to anybody: what a context worker holds for them is fetched all the same.

It would else hold the KV cache until its time is over, for a client that has left between the two legs.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from attrs import evolve
from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.attempts import Attempts
from plugins.dispatch.engine import Handoff, Notice, Request
from plugins.dispatch.worker import Role
from plugins.slots import Payload

_LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "chat_completions": ("max_tokens", "max_completion_tokens"),
    "responses": ("max_output_tokens",),
}
_LEAST: Final = 2
"""Tokens: the context worker has made the first one, and the second one needs the KV cache."""

_DROPPED: Final = ("stream_options", "min_tokens", "min_completion_tokens", "best_of")

log = get_logger()


def owe(attempts: Attempts, handoff: Handoff) -> None:
    """See to it, once the generation leg has failed, that its handoff is used when the request is over.

    A worker that had the request fetches the KV cache by itself.
    """
    if handoff.complete and not handoff.reusable and attempts.sent is not handoff:
        attempts.job.exchange.resources.push(partial(_settle, attempts, handoff))


def _settle(attempts: Attempts, handoff: Handoff) -> None:
    """Have a generation worker fetch what nobody came for."""
    job = attempts.job
    if job.service.handoffs.is_stale(handoff):
        return
    if handoff.once and attempts.began:
        return  # one worker was meant to have it, even if it could not be reached
    pool, facts = attempts.pool, attempts.facts
    try:
        body = job.service.engine.body(Role.GENERATION, _least(job.request), handoff)
    except Rejection:  # as the generation leg's own was
        body = None
    reservation = None if body is None else pool.reserve(facts, attempts.failed)
    if body is None or reservation is None:
        log.info("handoff.lost", model=job.service.model, request_id=job.exchange.id)
        return
    notice = Notice(job.request.endpoint.path, body.content, {**job.headers, **body.headers})
    log.info("handoff.released", model=job.service.model, request_id=job.exchange.id, worker=reservation.worker.url)
    job.service.errands.release(pool, reservation, notice)


def _least(request: Request) -> Request:
    """The same request for as little of an answer as can be."""
    data: dict[str, Any] = {name: value for name, value in request.payload.data.items() if name not in _DROPPED}
    names = _LIMITS.get(request.endpoint.name, ("max_tokens",))
    data |= {name: _LEAST for name in names if name in data} or {names[0]: _LEAST}
    data |= {"stream": False, **({"n": 1} if "n" in data else {})}
    return evolve(request, payload=Payload(request.payload.raw, data, edited=True), stream=False)
