"""Runs two legs at once, neither of which is good without the other."""

import asyncio
from typing import Any

from kernel import Rejection
from plugins.dispatch.client import Response
from plugins.dispatch.engine import Handoff, Partner
from plugins.dispatch.job import Job
from plugins.dispatch.leg import Leg
from plugins.dispatch.worker import Role, Worker


class _PairFailed(Exception):
    """A leg failed, the first one if both did: it is the cause, and the other one's failure that it waited in vain."""

    def __init__(self, leg: Leg, error: Rejection, handoff: Handoff | None) -> None:
        super().__init__(str(error))
        self.leg, self.error, self.handoff = leg, error, handoff


async def run_pair(job: Job, generation: Leg) -> tuple[Handoff | None, Response, bytes]:
    """What was read of the context worker's answer, and the generation worker's answer or first bytes.

    Nothing of it goes to the client before the context worker has said that it did its part: a generation worker
    answers from whatever is in its memory. When one leg fails, the other is told at once; both are tried again, with
    another handoff, or neither.

    Raises:
        Rejection: what the leg that failed first raised.
    """
    context = Leg(job, Role.CONTEXT)
    context.paired = generation.paired = True
    if context.unready is not None:
        await context.prepare()
    while True:
        worker = _choose(context, generation)
        try:
            handoff = await _meet(job, context, worker)
            return await _run_both(job, context, generation, handoff)
        except _PairFailed as failed:
            generation.give_back()
            if failed.error.status >= 500:
                job.service.introductions.forget(worker)
            if not await failed.leg.recover(failed.error, failed.handoff):
                raise failed.leg.fail(failed.error) from failed.error


def _choose(context: Leg, generation: Leg) -> Worker:
    """Choose both workers, or neither: one that is only to be tried would else wait for nothing. Gives the first one.

    Raises:
        Rejection: 503, there are none; or why others failed before.
    """
    held = generation.worker
    try:
        worker = context.choose(() if held is None else (held.url,))
        generation.choose((worker.url,))
    except Rejection:
        context.give_back()
        generation.give_back()
        raise
    return worker


async def _meet(job: Job, context: Leg, worker: Worker) -> Handoff:
    """Make the handoff of one attempt."""
    service = job.service
    if service.pairs is None:
        raise TypeError(f"the engine {service.engine.name!r} has legs that go together, and nothing by which they meet")
    try:
        if service.asks is not None:
            partner = await service.introductions.partner(service.asks, context.pool, worker)
        else:
            partner = Partner(worker.url, worker.bootstrap_port)
        return service.pairs.meet(job.request, partner)
    except Rejection as error:
        context.conclude(error)
        raise _PairFailed(context, error, None) from error


async def _run_both(
    job: Job, context: Leg, generation: Leg, handoff: Handoff
) -> tuple[Handoff | None, Response, bytes]:
    loop = job.exchange.loop
    asking = loop.create_task(context.ask(handoff))
    answering = loop.create_task(generation.open(handoff, stream=job.request.stream))
    tasks = (asking, answering)
    good = False
    try:
        if not await _all_well(loop, tasks):
            for leg, task in zip((context, generation), tasks, strict=True):
                error = task.exception() if task.done() else None
                if isinstance(error, Rejection):
                    raise _PairFailed(leg, error, handoff) from error
                if error is not None:
                    raise error
        good = True
    finally:
        if not good:
            await _stop(tasks, context, generation)
    reading = asking.result()
    response, answer = answering.result()
    return reading if isinstance(reading, Handoff) else handoff, response, answer


def _all_well(loop: asyncio.AbstractEventLoop, tasks: "tuple[asyncio.Task[Any], ...]") -> "asyncio.Future[bool]":
    """Whether all went well, once they have ended or one has not; how the others end then is nobody's loss."""
    told: asyncio.Future[bool] = loop.create_future()
    running = len(tasks)

    def note_end(task: "asyncio.Task[Any]") -> None:
        nonlocal running
        running -= 1
        well = not task.cancelled() and task.exception() is None
        if not (well and running) and not told.done():
            told.set_result(well)

    for task in tasks:
        task.add_done_callback(note_end)
    return told


async def _stop(tasks: "tuple[asyncio.Task[Any], ...]", context: Leg, generation: Leg) -> None:
    """Close the connection of the leg that still runs, and tell its worker."""
    for task in tasks:
        task.cancel()
    context.give_back()
    generation.give_back()
    await asyncio.wait(tasks)
