"""Carries a plan out: its legs in their order, and the reply to the client."""

from kernel import BytesReply, DataReply, Reply, StreamReply
from plugins.dispatch.client import Response
from plugins.dispatch.engine import Final, Handoff
from plugins.dispatch.headers import headers_for_client, is_plain
from plugins.dispatch.job import Job
from plugins.dispatch.leg import Leg
from plugins.dispatch.replay import Replayed, replay
from plugins.dispatch.stream import LegStream
from plugins.endpoints import CHAT_COMPLETIONS

_EVENTS = "text/event-stream; charset=utf-8"


async def run(job: Job) -> Reply:
    """Answer a request.

    The worker of a leg is chosen when its turn comes, not before: while the context phase runs, a generation
    worker would count load that it does not have yet, and might be gone when it is needed.
    """
    *earlier, last = job.service.engine.plan.legs
    handoff: Handoff | None = None
    for role in earlier:
        leg = Leg(job, role)
        _, reading = await leg.ask(handoff)
        if isinstance(reading, Final):
            _stamp(job, leg)
            return _final_reply(job, reading)
        if not isinstance(reading, Handoff):
            raise TypeError(f"engine {job.service.engine.name!r} read no handoff from its {role} leg")
        handoff = reading
    return await (_stream if job.request.stream else _whole)(job, Leg(job, last), handoff)


async def _whole(job: Job, leg: Leg, handoff: Handoff | None) -> Reply:
    response, reading = await leg.ask(handoff)
    _stamp(job, leg)
    if not isinstance(reading, bytes):
        raise TypeError(f"engine {job.service.engine.name!r} read no bytes from its last leg")
    return BytesReply(reading, headers=_headers(response, "application/json"))


async def _stream(job: Job, leg: Leg, handoff: Handoff | None) -> Reply:
    """Return a stream only with its first bytes at hand: until then an error is a status of its own."""
    response, first = await leg.open_stream(handoff)
    _stamp(job, leg)
    source = LegStream(leg, response, first)
    reply = StreamReply(source, headers=_headers(response, _EVENTS))
    reply.attach(end=source.end)
    return reply


def _final_reply(job: Job, final: Final) -> Reply:
    """The reply when an early leg had the whole answer; a client that wanted a stream gets its text as one."""
    if not job.request.stream:
        return DataReply(final.data)
    options = job.request.payload.data.get("stream_options")
    events = replay(
        final.data,
        chat=job.request.endpoint is CHAT_COMPLETIONS,
        usage=isinstance(options, dict) and options.get("include_usage") is True,
    )
    return StreamReply(Replayed(tuple(events)), headers=[(b"content-type", _EVENTS.encode())])


def _headers(response: Response, default: str) -> list[tuple[bytes, bytes]]:
    kind = response.headers.get("content-type", "")
    headers = [("content-type", kind if kind and is_plain(kind) else default), *headers_for_client(response.headers)]
    return [(name.encode(), value.encode()) for name, value in headers]


def _stamp(job: Job, leg: Leg) -> None:
    if job.timing is not None:
        job.timing.answered = leg.answered
