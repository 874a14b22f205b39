"""Runs two legs at once, neither of which is good without the other."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, cast

from kernel import Rejection
from plugins.dispatch.client import ConnectFault, Fault, Response
from plugins.dispatch.engine import Handoff, Pairs
from plugins.dispatch.handoffs import SpentHandoff
from plugins.dispatch.job import Job
from plugins.dispatch.leg import Leg
from plugins.dispatch.worker import Worker

_ROUNDS: Final = 4
"""How often two workers are chosen; as with one leg, it ends when three of a role could not be reached."""


async def run_pair(job: Job, generation: Leg) -> tuple[Handoff | None, Response, bytes]:
    """What was read of the context worker's answer, and the generation worker's answer or first bytes.

    Nothing of it goes to the client before the context worker has said that it did its part: a generation worker
    answers from whatever is in its memory. When one leg fails, the other is told at once.

    Raises:
        Rejection: what the leg that failed first raised.
    """
    context = Leg(job, job.service.engine.plan.legs[0])
    context.attempts.paired = generation.attempts.paired = True
    await context.attempts.prepare()
    spent: SpentHandoff | None = None
    for _ in range(_ROUNDS):
        worker = context.attempts.take(() if (held := generation.attempts.worker) is None else (held.url,))
        generation.attempts.take((worker.url,))
        try:
            handoff = await _meet(job, context, worker)
            return await _run_both(job, context, generation, handoff)
        except SpentHandoff as error:
            job.service.introductions.forget(worker)
            spent = error
        except Rejection as error:
            if error.status >= 500:
                job.service.introductions.forget(worker)
            raise
    fault: Fault = ConnectFault("no pair of workers could be reached") if spent is None else spent.fault
    context.fail(fault)
    raise fault


async def _meet(job: Job, context: Leg, worker: Worker) -> Handoff:
    """Make the handoff of one attempt."""
    service = job.service
    try:
        partner = await service.introductions.partner(service.engine, context.attempts.pool, worker)
        return _pairs(job).meet(job.request, partner)
    except ConnectFault as fault:
        context.attempts.pool.report(worker, fault)
        context.attempts.exclude()
        raise SpentHandoff(fault) from fault


async def _run_both(
    job: Job, context: Leg, generation: Leg, handoff: Handoff
) -> tuple[Handoff | None, Response, bytes]:
    asking = _start(context.ask(handoff))
    answering = _start((generation.open_stream if job.request.stream else generation.fetch)(handoff))
    tasks = (asking, answering)
    good = False
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        # of two that failed the context worker's error is the cause, and the other one's that it waited in vain
        for task in tasks:
            if task.done():
                task.result()
        good = True
    finally:
        if not good:
            await _stop(tasks, context, generation)
    _, reading = asking.result()
    response, answer = answering.result()
    return reading if isinstance(reading, Handoff) else handoff, response, answer


async def _stop(tasks: "tuple[asyncio.Task[Any], ...]", context: Leg, generation: Leg) -> None:
    """Close the connection of the leg that still runs, and tell its worker."""
    for task in tasks:
        task.cancel()
    context.attempts.drop()
    generation.attempts.drop()
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
