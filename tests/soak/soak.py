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

SAMPLE_SECONDS: Final = 0.2
RESTING_SAMPLES: Final = 10
SETTLE_SECONDS: Final = 3 * max(LEASE_SECONDS, KEPT_SECONDS) + 10.0


@frozen
class Plan:
    """How many requests, in how many seconds at the most, over how many connections, with which dice.

    Before so many of them a worker is told to commit a fault, and before so many one is killed and started again.
    """

    requests: int
    seconds: float = float("inf")
    clients: int = 48
    seed: int = 1
    fault_share: float = 0.12
    death_share: float = 0.0005


@define(eq=False)
class Record:
    """What was seen: the kernel's memory in bytes after so many requests, metrics, and what was wrong."""

    memory: list[tuple[int, int]] = field(factory=list)
    done: int = 0
    metrics: Metrics = field(factory=dict)
    problems: list[str] = field(factory=list)
    answered: Mapping[int, int] = field(factory=dict)
    left: Mapping[str, int] = field(factory=dict)
    seconds: float = 0.0


async def soak(plan: Plan, folder: Path) -> Record:
    """Run one soak."""
    record = Record()
    async with run_fleet(plan.seed) as fleet, run_subject(fleet, folder) as subject:
        resting = await _rest(subject)
        began = asyncio.get_running_loop().time()
        crowd = Crowd(
            subject.port, plan.requests, random.Random(plan.seed), _mischief(plan, fleet), began + plan.seconds
        )
        sampling = asyncio.create_task(_sample(crowd, subject, record))
        await crowd.run(plan.clients)
        sampling.cancel()
        record.seconds = asyncio.get_running_loop().time() - began
        fleet.calm()
        record.done, record.answered, record.left = crowd.done, crowd.answered, crowd.left
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


async def _sample(crowd: Crowd, subject: Subject, record: Record) -> None:
    """Note the memory now and then, until cancelled."""
    while True:
        record.memory.append((crowd.done, subject.resident()))
        await asyncio.sleep(SAMPLE_SECONDS)


async def _rest(subject: Subject) -> Metrics:
    """What there is when nothing is asked; now and then a probe adds to it."""
    samples = []
    for _ in range(RESTING_SAMPLES):
        samples.append(await subject.metrics())
        await asyncio.sleep(0.05)
    return {name: min(sample.get(name, 0.0) for sample in samples) for name in samples[-1]}


async def _settle(record: Record, fleet: Fleet, subject: Subject, resting: Metrics) -> None:
    """Wait until all is as it was at first; what is not in time is a problem."""
    found: list[str] = []
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        record.metrics = await subject.metrics()
        given_up = total(record.metrics, "ctx_error_requests_total")
        found = [*fleet.problems(int(given_up)), *_remains(record.metrics, resting)]
        if not found:
            break
        await asyncio.sleep(0.05)
    record.problems += found


def _remains(metrics: Metrics, resting: Metrics) -> list[str]:
    """What the kernel still has of requests that are over."""
    zero = ("kernel_reservations", "kernel_requests_in_flight")
    found = [f"{name} is {total(metrics, name):g}" for name in zero if total(metrics, name)]
    pairs = {name: (total(metrics, name), total(resting, name)) for name in ("python_tasks", "process_open_fds")}
    found += [f"{name} is {now:g}, and was {first:g}" for name, (now, first) in pairs.items() if now > first]
    # one that failed too often stays ejected until a request tries it, and none comes any more
    there = total(metrics, "kernel_workers_up") + total(metrics, "kernel_breakers_open")
    if there < total(metrics, "kernel_workers"):
        found.append(f"of {total(metrics, 'kernel_workers'):g} workers only {there:g} are up again or ejected")
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


def growth(record: Record) -> float:
    """How many bytes larger the kernel is in the last quarter of the requests than in the third, for each request."""

    def middle(quarter: int) -> tuple[float, float]:
        low, high = record.done * quarter / 4, record.done * (quarter + 1) / 4
        samples = [sample for sample in record.memory if low <= sample[0] <= high]
        return median(sample[0] for sample in samples), median(sample[1] for sample in samples)

    (early, before), (late, after) = middle(2), middle(3)
    return (after - before) / (late - early)
