"""What was seen of one cell, in the words of the table, and what must hold of every cell."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from re import escape, fullmatch
from typing import Any, Final

from attrs import asdict, field, frozen

from plugins.dispatch.worker import Worker
from tests.host.wire import Answer
from tests.matrix.reading import show
from tests.matrix.setups import MODEL
from tests.matrix.world import Metrics, World, read_metrics, until

LEGS: Final = {"context": "ctx", "generation": "gen"}

NAMES: Final = {"both": "worker"}
"""What the table calls a role."""

_OWN: Final = ("no_worker_ready", "shutting_down", "deadline_exceeded")
"""Codes of errors that are the kernel's own; all others are a worker's doing."""


@frozen
class Seen:
    """One cell: what the client got, how each leg ended, who was told to stop, and what is left where.

    `sent` counts the requests that reached the workers of each role, `told` is who was sent an abort, `workers` are
    those that were taken out of service, and `held` is where KV blocks are held although nobody will fetch them.
    """

    answer: str
    context: str
    generation: str
    sent: str
    told: str
    workers: str
    held: str
    complaints: tuple[str, ...] = field(default=(), eq=False)

    @classmethod
    def of(cls, values: Sequence[str]) -> "Seen":
        """From the columns of the table, which are in the order of the fields."""
        answer, context, generation, sent, told, workers, held = values
        return cls(answer, context, generation, sent, told, workers, held)

    def differences(self, expected: "Seen") -> list[str]:
        """What is not as expected; `*` and `or` stand where it depends on which of two workers was faster."""
        wanted = expected.row()
        return [
            f"{name}: {mine}, not {wanted[name]}"
            for name, mine in self.row().items()
            if not any(fullmatch(escape(one).replace(r"\*", r"\d+"), mine) for one in wanted[name].split(" or "))
        ]

    def row(self) -> dict[str, str]:
        """The columns of the table."""
        return {name: value for name, value in asdict(self).items() if name != "complaints"}


async def look(world: World, answer: Answer | None, expected: str, lines: list[Any]) -> Seen:
    """Look at a world after a request, and at what remains once the kernel has stopped."""
    await world.settle()
    workers = await _workers(world)
    shown = show(answer, world.asked, expected)
    changes = world.changes()
    states = {role: [stub.state() for stub in stubs] for role, stubs in world.stubs.items()}
    told = [role for role, those in states.items() if any(state.probes.get("/abort_request") for state in those)]
    held = [role for role, those in states.items() if any(state.held_blocks for state in those)]
    complaints = [*_uncounted(changes, shown, world), *_unclean(world), *_alarms(lines), *await _open(world, told)]
    await world.close()
    complaints += await _left_open(world)
    return Seen(
        shown,
        _leg(changes, "ctx"),
        _leg(changes, "gen"),
        "/".join(str(sum(world.received(stub) for stub in those)) for those in world.stubs.values()),
        "both" if len(told) == 2 else "".join(told) or "-",
        workers,
        " ".join(held) or "-",
        tuple(complaints + world.worried),
    )


def _leg(changes: Metrics, prefix: str) -> str:
    """How the legs of one phase ended: well or not, and how often they were tried again."""
    failed = int(changes.get(f"{prefix}_error_requests_total", 0))
    well = int(changes.get(f"{prefix}_completed_requests_total", 0)) - failed
    retried = int(changes.get(f"{prefix}_retry_requests_total", 0))
    counts = ((well, "ok"), (failed, "failed"), (retried, "retried"))
    return ", ".join(f"{count} {word}" if count > 1 else word for count, word in counts if count) or "-"


async def _workers(world: World) -> str:
    """Which workers are out of service, and which have been and are back."""
    found = []
    for role, stubs in world.stubs.items():
        for worker, stub in zip(world.workers[role], stubs, strict=True):
            if worker.faults and stub._listener.listens:
                await until(partial(_is_up, worker))
            if worker.faults or not worker.up:
                found.append(f"{NAMES.get(role, role)} {'back' if worker.up else 'down'}")
    return ", ".join(found) or "up"


def _is_up(worker: Worker) -> bool:
    return worker.up is True


def _uncounted(changes: Metrics, shown: str, world: World) -> Iterator[str]:
    """What does not add up in the kernel's metrics."""
    for role, prefix in LEGS.items():
        begun, ended, failed = (
            changes.get(f"{prefix}_{what}_requests_total", 0) for what in ("total", "completed", "error")
        )
        if begun != ended:
            yield f"{begun:g} legs of the {role} phase began and {ended:g} ended"
        if changes.get(f"{prefix}_complete_latency_seconds_count", 0) != ended - failed:
            yield f"not every {role} leg that went well was timed once"
    status, error = _counted_as(shown)
    labels = f'endpoint="{world.endpoint}"'
    own = f'kernel_errors_total{{{labels},error="rejected",model="{MODEL}"}}'
    if own in changes and world.asked[0] == "messages" and status == 503:
        error = "rejected"  # this API has no codes that would tell whose error it is
    expected = {f'kernel_requests_total{{{labels},model="{MODEL}",status="{status}"}}': 1.0}
    if error:
        expected[f'kernel_errors_total{{{labels},error="{error}",model="{MODEL}"}}'] = 1.0
    counted = {
        name: n for name, n in changes.items() if name.startswith(("kernel_requests_total", "kernel_errors_total"))
    }
    if counted != expected:
        yield f"counted as {counted}, not {expected}"
    if changes.get("total_requests_total") != 1 or changes.get("internal_errors_total"):
        yield "not counted as one valid request without an internal error"
    for name, value in read_metrics().items():
        if value and name.startswith(("kernel_reservations", "kernel_requests_in_flight")):
            yield f"{name} is {value:g}"


def _counted_as(shown: str) -> tuple[int, str | None]:
    """The status and the class of error under which an answer is counted."""
    if shown == "ok":
        return 200, None
    if shown == "nothing":
        return 499, "client_gone"
    own = shown.endswith(_OWN)
    return int(shown[:3]), "rejected" if own else "worker"


def _unclean(world: World) -> Iterator[str]:
    """What stubs have to complain of, and what was lost for them."""
    for role, stubs in world.stubs.items():
        for stub in stubs:
            state = stub.state()
            if state.violations or state.leaked_blocks:
                yield f"{role}: {state.violation_notes}, {state.leaked_blocks} blocks leaked"


async def _open(world: World, told: list[str]) -> list[str]:
    """The workers to which more connections are open than are kept because their last answer was read to its end."""
    excess: list[str] = []

    def find() -> bool:
        excess.clear()
        for role, stubs in world.stubs.items():
            for state in (stub.state() for stub in stubs):
                asides = role in told or "/server_info" in state.probes
                if state.connections_open > state.finished + asides:
                    excess.append(f"{role}: {state.connections_open} connections are open")
        return not excess

    with suppress(TimeoutError):
        await until(find)
    return excess


def _alarms(lines: list[Any]) -> Iterator[str]:
    """What was logged that is never due to a worker or a client."""
    for line in lines:
        if line["log_level"] in ("error", "critical") or "exc_info" in line:
            yield f"logged: {line}"


async def _left_open(world: World) -> list[str]:
    """What the kernel still has of workers after its end."""
    try:
        await until(lambda: not any(stub.state().connections_open for stub in world.everyone))
    except TimeoutError:
        return ["connections to workers outlive the kernel"]
    return [f"outlives the kernel: {task.get_coro()!r:.160}" for task in world.left()]
