"""Runs two legs at once, neither of which is good without the other."""

import asyncio
from typing import Any

from kernel import Rejection
from plugins.dispatch.client import Response
from plugins.dispatch.engine import Handoff
from plugins.dispatch.job import Job
from plugins.dispatch.leg import Leg
from plugins.dispatch.worker import Role


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
    if service.pairs is None:
        raise TypeError(f"the engine {service.engine.name!r} has legs that go together, and nothing by which they meet")
    try:
        partner = await service.introductions.partner(service.engine, context.pool, worker)
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
    tasks: tuple[asyncio.Task[Any], ...] = (asking, answering)
    good = False
    try:
        await _all_or_one_failed(loop, tasks)
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


async def _all_or_one_failed(loop: asyncio.AbstractEventLoop, tasks: "tuple[asyncio.Task[Any], ...]") -> None:
    """Wait for both to be done, or one of them to fail; how the other one ends then is nobody's loss."""
    waiter = loop.create_future()
    running = len(tasks)

    def note_end(task: "asyncio.Task[Any]") -> None:
        nonlocal running
        running -= 1
        failed = task.cancelled() or task.exception() is not None
        if (failed or not running) and not waiter.done():
            waiter.set_result(None)

    for task in tasks:
        task.add_done_callback(note_end)
    await waiter


async def _stop(tasks: "tuple[asyncio.Task[Any], ...]", context: Leg, generation: Leg) -> None:
    """Close the connection of the leg that still runs, and tell its worker."""
    for task in tasks:
        task.cancel()
    context.give_back()
    generation.give_back()
    await asyncio.wait(tasks)
