"""Carries a plan out: its legs in their order, and the reply to the client."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import orjson
from attrs import evolve
from structlog.stdlib import get_logger

from kernel import BytesReply, Reply, StreamReply
from plugins.dispatch.abilities import TriesFirst, can
from plugins.dispatch.client import Response
from plugins.dispatch.editing import EventEditor
from plugins.dispatch.engine import Bypasses, Edits, Handoff, ServesAlone
from plugins.dispatch.engine import Final as FinalAnswer
from plugins.dispatch.freeing import freed_unless_taken
from plugins.dispatch.handoffs import SpentHandoff
from plugins.dispatch.headers import reply_headers
from plugins.dispatch.job import Job
from plugins.dispatch.leg import Leg
from plugins.dispatch.named_events import replay_message, replay_response
from plugins.dispatch.owed import owe
from plugins.dispatch.pair import run_pair
from plugins.dispatch.replay import Replayed, replay
from plugins.dispatch.scrubbing import ERROR, scrub
from plugins.dispatch.stream import LegStream
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS
from plugins.metrics import HANDOFFS_MISSING, child

_EVENTS: Final = "text/event-stream; charset=utf-8"

log = get_logger()


async def run(job: Job) -> Reply:
    """Answer a request."""
    engine, config = job.service.engine, job.service.handoffs
    config.check_deadline(job.exchange)
    last = Leg(job, engine.plan.legs[-1])
    if len(engine.plan.legs) == 1:
        return await _answer(job, last, None)
    await last.attempts.prepare()  # a handoff must not wait for it
    if _goes_alone(job, last):
        return await _answer(job, last, None)
    if engine.plan.together:
        handoff, response, answer = await run_pair(job, last)
        return _reply(job, last, response, answer, handoff)
    if (tries := job.service.tries) is not None and (trial := tries.trial(job.request)) is not None:
        reply = await _try_first(job, tries, trial)
        if reply is not None:
            return reply
    return await _relay(job, last)


async def _try_first(job: Job, tries: TriesFirst, trial: Handoff) -> Reply | None:
    """The answer of a generation worker that has enough of the prompt to do both phases; None of one that has not."""
    leg = Leg(job, job.service.engine.plan.legs[-1])
    response, answer = await (leg.open_stream if job.request.stream else leg.fetch)(trial)
    if not tries.declined(answer):
        return _reply(job, leg, response, answer, trial)
    leg.succeed()
    return None


def _goes_alone(job: Job, last: Leg) -> bool:
    """Whether the last leg's worker serves the whole request; where that depends on it, it is chosen now."""
    engine, config = job.service.engine, job.service.handoffs
    if can(engine, ServesAlone) and engine.alone(job.request):
        return True
    if not last.attempts.pool.ready:
        raise last.attempts.unserved()  # nobody would fetch what the context phase leaves
    if config.alone_without_context and not job.service.pools[Role.CONTEXT].ready:
        return True
    if can(engine, Bypasses) and engine.conditional:
        last.attempts.take()
        match = last.attempts.facts.match
        return match is not None and engine.bypass(match)
    if config.skip_context_below_tokens:
        last.attempts.take()
        return config.skips(last.attempts.facts)
    return False


async def _relay(job: Job, last: Leg) -> Reply:
    """Ask the context worker, then the generation worker, which is usually chosen only then.

    While the context phase runs, a generation worker would count load that it does not have yet, and might be
    gone when it is needed. A handoff that came to nothing is followed by a new one, as long as the generation leg may
    be tried again.
    """
    while True:
        leg = Leg(job, job.service.engine.plan.legs[0])
        if last.attempts.worker is not None:
            leg.choose((last.attempts.worker.url,))
        _, reading = await leg.ask(None)
        if isinstance(reading, FinalAnswer):
            _stamp(job, leg)
            last.attempts.drop()  # if it was chosen, it was asked nothing
            return _final_reply(job, reading)
        if not isinstance(reading, Handoff):
            raise TypeError(f"engine {job.service.engine.name!r} read no handoff from its {leg.role} leg")
        if not reading.complete:
            child(HANDOFFS_MISSING, job.service.model).inc()
            log.warning("handoff.missing", model=job.service.model, request_id=job.exchange.id)
        last.attempts.follow(leg.attempts.latest)
        if job.service.frees is not None:
            reading = evolve(reading, origin=leg.attempts.latest)
        else:
            owe(job, last.attempts, reading)
        with suppress(SpentHandoff), freed_unless_taken(job, last.attempts, reading):
            return await _answer(job, last, reading)


async def _answer(job: Job, leg: Leg, handoff: Handoff | None) -> Reply:
    """Return a stream only with its first bytes at hand: until then an error is a status of its own."""
    response, answer = await (leg.open_stream if job.request.stream else leg.fetch)(handoff)
    return _reply(job, leg, response, answer, handoff)


def _reply(job: Job, leg: Leg, response: Response, answer: bytes, handoff: Handoff | None) -> Reply:
    """The reply out of the whole answer, or the first bytes, of the last leg."""
    _stamp(job, leg)
    engine = job.service.engine
    if not job.request.stream:
        reading = leg.read(answer, handoff)
        if not isinstance(reading, bytes):
            raise TypeError(f"engine {engine.name!r} read no bytes from its last leg")
        return BytesReply(reading, headers=reply_headers(response.headers, "application/json"))
    source = LegStream(leg, response, answer)
    reply = StreamReply(source, headers=reply_headers(response.headers, _EVENTS))
    if can(engine, Edits):
        editor = _editor(job, engine, handoff)
        reply.attach(step=editor.push, close=editor.close, end=source.end)
    else:
        reply.attach(end=source.end)
    return reply


def _final_reply(job: Job, final: FinalAnswer) -> Reply:
    """The reply when an early leg had the whole answer; a client that wanted a stream gets its text as one."""
    if not job.request.stream:
        return BytesReply(orjson.dumps(final.data), headers=[(b"content-type", b"application/json")])
    return StreamReply(Replayed(tuple(_events(job, final.data))), headers=[(b"content-type", _EVENTS.encode())])


def _events(job: Job, answer: dict[str, Any]) -> Iterable[bytes]:
    """A whole answer as a stream of its API."""
    match job.request.endpoint.name:
        case "responses":
            return replay_response(answer)
        case "messages":
            return replay_message(answer)
        case name:
            options = job.request.payload.data.get("stream_options")
            usage = isinstance(options, dict) and options.get("include_usage") is True
            return replay(answer, chat=name == CHAT_COMPLETIONS.name, usage=usage)


def _editor(job: Job, engine: Edits, handoff: Handoff | None) -> EventEditor:
    """What changes the events of an engine's stream, its errors included."""
    concern = engine.concern

    def edit(name: bytes, data: bytes) -> bytes | None:
        plain = scrub(name, data)
        if concern.search(name) is None and concern.search(plain) is None:
            return plain
        return engine.edit(job.request, handoff, name, plain)

    return EventEditor(concern, edit, ERROR)


def _stamp(job: Job, leg: Leg) -> None:
    if job.timing is not None:
        job.timing.answered = leg.answered
