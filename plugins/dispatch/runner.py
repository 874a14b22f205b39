"""Carries a plan out: its legs in their order, and the reply to the client."""

from collections.abc import Iterable
from typing import Any, Final

import orjson
from attrs import evolve
from structlog.stdlib import get_logger

from kernel import BytesReply, Rejection, Reply, StreamReply
from plugins.dispatch.abilities import TriesFirst
from plugins.dispatch.client import Response
from plugins.dispatch.editing import EventEditor
from plugins.dispatch.engine import Edits, Handoff, Reading
from plugins.dispatch.engine import Final as FinalAnswer
from plugins.dispatch.freeing import forget_link, free
from plugins.dispatch.handoffs import SpentHandoff
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

_EVENTS: Final = b"text/event-stream; charset=utf-8"

log = get_logger()


async def run(job: Job) -> Reply:
    """Answer a request. A stream is returned only with its first bytes at hand: until then an error is a status."""
    service, stream = job.service, job.request.stream
    if job.deadline is not None:
        service.handoffs.check_deadline(job.deadline)
    last, handoff = Leg(job, service.plan.legs[-1]), None
    if service.single or await _is_alone(job, last):
        response, answer = await last.open(None, stream=stream)
    elif service.plan.together:
        handoff, response, answer = await run_pair(job, last)
    else:
        return await _relay(job, last)
    return _reply(job, last, response, answer, handoff)


async def _try_first(job: Job, tries: TriesFirst, trial: Handoff) -> Reply | None:
    """The answer of a generation worker that has enough of the prompt to do both phases; None of one that has not."""
    leg = Leg(job, job.service.plan.legs[-1])
    response, answer = await leg.open(trial, stream=job.request.stream)
    if not tries.declined(answer):
        return _reply(job, leg, response, answer, trial)
    leg.succeed()
    return None


async def _is_alone(job: Job, last: Leg) -> bool:
    """Whether the last leg's worker serves the whole request; where that depends on it, it is chosen now."""
    if last.unready is not None:
        await last.prepare()  # a handoff must not wait for it
    service, config = job.service, job.service.handoffs
    if service.alone is not None and service.alone.alone(job.request):
        return True
    if not last.pool.ready:
        raise last.unserved()  # nobody would fetch what the context phase leaves
    if config.alone_without_context and not service.pools[Role.CONTEXT].ready:
        return True
    if service.bypasses is not None:
        last.take()
        match = last.facts.match
        return match is not None and service.bypasses.bypass(match)
    if config.skip_context_below_tokens:
        last.take()
        return config.skips(last.facts)
    return False


async def _relay(job: Job, last: Leg) -> Reply:
    """Ask the context worker, then the generation worker, which is usually chosen only then.

    While the context phase runs, a generation worker would count load that it does not have yet, and might be
    gone when it is needed. A handoff that came to nothing is followed by a new one, as long as the generation leg may
    be tried again.
    """
    service, reply = job.service, None
    if service.tries is not None and (trial := service.tries.trial(job.request)) is not None:
        reply = await _try_first(job, service.tries, trial)
    while reply is None:
        first = Leg(job, service.plan.legs[0])
        if last.worker is not None:
            first.choose((last.worker.url,))
        _, answer = await first.open(None, stream=False)
        handoff = _take_over(job, first, last, first.read(answer, None))
        if not isinstance(handoff, Handoff):
            return _final_reply(job, handoff)
        try:
            response, answer = await last.open(handoff, stream=job.request.stream)
            reply = _reply(job, last, response, answer, handoff)
        except SpentHandoff as spent:
            forget_link(last, handoff, spent.__cause__)
        except Rejection as error:
            forget_link(last, handoff, error)
            raise
        finally:
            if reply is None:
                (owe if service.frees is None else free)(last, handoff)
    return reply


def _take_over(job: Job, first: Leg, last: Leg, reading: Reading) -> Handoff | FinalAnswer:
    """What the last leg goes on with, if it has to."""
    service = job.service
    if isinstance(reading, Handoff):
        if not reading.complete:
            child(HANDOFFS_MISSING, service.model).inc()
            log.warning("handoff.missing", model=service.model, request_id=job.exchange.id)
        last.follow(first.latest)
        return reading if service.frees is None else evolve(reading, origin=first.latest)
    if not isinstance(reading, FinalAnswer):
        raise TypeError(f"engine {service.engine.name!r} read no handoff from its {first.role} leg")
    last.give_back()  # if it was chosen, it was asked nothing
    if job.timing is not None:
        job.timing.answered = first.answered
    return reading


def _reply(job: Job, leg: Leg, response: Response, answer: bytes, handoff: Handoff | None) -> Reply:
    """The reply out of the whole answer, or the first bytes, of the last leg."""
    if job.timing is not None:
        job.timing.answered = leg.answered
    if not job.request.stream:
        reading = leg.read(answer, handoff)
        if not isinstance(reading, bytes):
            raise TypeError(f"engine {job.service.engine.name!r} read no bytes from its last leg")
        return BytesReply(reading, headers=response.traits.reply_headers(b"application/json"))
    source = LegStream(leg, response, answer)
    reply = StreamReply(source, headers=response.traits.reply_headers(_EVENTS))
    edits = job.service.edits
    if edits is None:
        reply.attach(end=source.end)
    else:
        editor = _editor(job, edits, handoff)
        reply.attach(step=editor.push, close=editor.close, end=source.end)
    return reply


def _final_reply(job: Job, final: FinalAnswer) -> Reply:
    """The reply when an early leg had the whole answer; a client that wanted a stream gets its text as one."""
    if not job.request.stream:
        return BytesReply(orjson.dumps(final.data), headers=[(b"content-type", b"application/json")])
    return StreamReply(Replayed(tuple(_events(job, final.data))), headers=[(b"content-type", _EVENTS)])


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
