"""The soak: many requests with random faults and hang-ups, after which nothing may be left."""

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Final

from attrs import define, field, frozen

from tests.soak.crowd import BODY, Crowd, Visit
from tests.soak.fleet import LEASE_SECONDS, Fleet, run_fleet
from tests.soak.subject import KEPT_SECONDS, Metrics, Subject, run_subject, total

SAMPLES: Final = 100
SETTLE_SECONDS: Final = 3 * max(LEASE_SECONDS, KEPT_SECONDS) + 10.0


@frozen
class Plan:
    """How many requests, over how many connections, with which dice; one in `1 / fault_share` has a fault ahead."""

    requests: int
    clients: int = 32
    seed: int = 1
    fault_share: float = 0.12
    death_share: float = 0.0005


@define(eq=False)
class Record:
    """What was seen: a sample of memory after each hundredth of the requests, metrics, and what was wrong."""

    memory: list[tuple[int, int, float]] = field(factory=list)
    metrics: Metrics = field(factory=dict)
    problems: list[str] = field(factory=list)
    answered: Mapping[int, int] = field(factory=dict)
    left: Mapping[str, int] = field(factory=dict)
    seconds: float = 0.0


async def soak(plan: Plan, folder: Path) -> Record:
    """Run one soak."""
    record = Record()
    async with run_fleet(plan.seed) as fleet, run_subject(fleet, folder) as subject:
        resting = await subject.metrics()
        crowd = Crowd(subject.port, plan.requests, random.Random(plan.seed), _mischief(plan, fleet))
        began = asyncio.get_running_loop().time()
        sampling = asyncio.create_task(_sample(plan, crowd, subject, record))
        await crowd.run(plan.clients)
        await sampling
        record.seconds = asyncio.get_running_loop().time() - began
        fleet.calm()
        record.answered, record.left = crowd.answered, crowd.left
        record.problems += crowd.broken
        await _settle(record, fleet, subject, resting)
        record.problems += [*_accounts(record.metrics, crowd), *subject.alarms()]
    return record


def _mischief(plan: Plan, fleet: Fleet) -> Callable[[Visit], None]:
    def befall(visit: Visit) -> None:
        if fleet.chance.random() < plan.fault_share:
            fleet.strike(visit.model)
        if fleet.chance.random() < plan.death_share:
            fleet.kill(visit.model)

    return befall


async def _sample(plan: Plan, crowd: Crowd, subject: Subject, record: Record) -> None:
    """Note the memory each time a hundredth of the requests was made."""
    for sample in range(1, SAMPLES + 1):
        while crowd.done < plan.requests * sample // SAMPLES and not crowd.broken:
            await asyncio.sleep(0.01)  # noqa: ASYNC110  # a soak samples; nothing waits for it
        metrics = await subject.metrics()
        record.memory.append((crowd.done, subject.resident(), metrics["python_memory_blocks"]))


async def _settle(record: Record, fleet: Fleet, subject: Subject, resting: Metrics) -> None:
    """Wait until all is as it was at first; what is not in time is a problem."""
    found: list[str] = []
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        record.metrics = await subject.metrics()
        found = [*fleet.problems(), *_remains(record.metrics, resting)]
        if not found:
            break
        await asyncio.sleep(0.05)
    record.problems += found


def _remains(metrics: Metrics, resting: Metrics) -> list[str]:
    """What the kernel still has of requests that are over."""
    zero = ("kernel_reservations", "kernel_requests_in_flight")
    found = [f"{name} is {total(metrics, name):g}" for name in zero if total(metrics, name)]
    for name in ("python_tasks", "process_open_fds", "kernel_workers_up"):
        if total(metrics, name) != total(resting, name):
            found.append(f"{name} is {total(metrics, name):g}, and was {total(resting, name):g} at first")
    return found


def _accounts(metrics: Metrics, crowd: Crowd) -> list[str]:
    """What does not add up."""
    found = []
    for prefix in ("ctx", "gen"):
        begun, ended = (total(metrics, f"{prefix}_{what}_requests_total") for what in ("total", "completed"))
        if begun != ended or not begun:
            found.append(f"{prefix}: {begun:g} legs began and {ended:g} ended")
    counted = total(metrics, "kernel_requests_total")
    if not crowd.done - crowd.resets - crowd.left[BODY] <= counted <= crowd.done:
        found.append(f"{counted:g} requests were counted, {crowd.done} made, {crowd.resets} of them reset")
    for status, seen in crowd.answered.items():
        if total(metrics, "kernel_requests_total", status=str(status)) < seen:
            found.append(f"{seen} clients saw status {status}, and fewer were counted")
    if total(metrics, "internal_errors_total"):
        found.append(f"{total(metrics, 'internal_errors_total'):g} internal errors")
    return found


def growth(record: Record, column: int) -> float:
    """How much more there is in the last quarter of the samples than in the second, by their medians, per request."""
    quarter = len(record.memory) // 4
    early, late = record.memory[quarter : 2 * quarter], record.memory[-quarter:]
    requests = median(sample[0] for sample in late) - median(sample[0] for sample in early)
    return (median(sample[column] for sample in late) - median(sample[column] for sample in early)) / requests
