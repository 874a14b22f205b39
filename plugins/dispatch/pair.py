"""Runs two legs at once, neither of which is good without the other."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from kernel import Rejection
from plugins.dispatch.client import Response
from plugins.dispatch.engine import Handoff, Pairs
from plugins.dispatch.job import Job
from plugins.dispatch.leg import Leg


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
    context = Leg(job, job.service.plan.legs[0])
    context.paired = generation.paired = True
    await context.prepare()
    while True:
        _choose(context, generation)
        worker = context.latest
        try:
            handoff = await _meet(job, context)
            return await _run_both(job, context, generation, handoff)
        except _PairFailed as failed:
            generation.give_back()
            if worker is not None and failed.error.status >= 500:
                job.service.introductions.forget(worker)
            if not await failed.leg.recover(failed.error, failed.handoff):
                raise failed.leg.fail(failed.error) from failed.error


def _choose(context: Leg, generation: Leg) -> None:
    """Choose both workers, or neither: one that is only to be tried would else wait for nothing.

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


async def _meet(job: Job, context: Leg) -> Handoff:
    """Make the handoff of one attempt."""
    service, worker = job.service, context.take()
    try:
        partner = await service.introductions.partner(service.engine, context.pool, worker)
        return _pairs(job).meet(job.request, partner)
    except Rejection as error:
        context.conclude(error)
        raise _PairFailed(context, error, None) from error


async def _run_both(
    job: Job, context: Leg, generation: Leg, handoff: Handoff
) -> tuple[Handoff | None, Response, bytes]:
    asking = _start(context.ask(handoff))
    answering = _start(generation.open(handoff, stream=job.request.stream))
    tasks = (asking, answering)
    good = False
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
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


async def _stop(tasks: "tuple[asyncio.Task[Any], ...]", context: Leg, generation: Leg) -> None:
    """Close the connection of the leg that still runs, and tell its worker."""
    for task in tasks:
        task.cancel()
    context.give_back()
    generation.give_back()
    await asyncio.wait(tasks)


def _start(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_look)
    return task


def _look(task: "asyncio.Task[Any]") -> None:
    """Look at how a leg ended, which is nobody's loss where the other one failed before."""
    if not task.cancelled():
        task.exception()


def _pairs(job: Job) -> Pairs:
    return cast("Pairs", job.service.engine)
