"""Attributes a profile to stages, without what the profiler took itself."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from attrs import field, frozen

from bench.stages import GARBAGE, LOOP, STAGES, stage_of

Function: TypeAlias = tuple[str, int, str]
"""A file, a line and a name, as profiles have them."""

Callers: TypeAlias = Mapping[Function, tuple[int, int, float, float]]
Profile: TypeAlias = Mapping[Function, tuple[int, int, float, float, Callers]]
"""What `pstats` has of each function: calls without recursive ones, calls, own seconds, all seconds, and callers."""

CALLERS_PART: Final = 0.75
"""The share of what the profiler takes for a call that it takes for the caller's time; the rest is the callee's."""

_PASSES: Final = 30
"""How many functions of libraries may call each other before one of a stage is found."""


@frozen
class Attribution:
    """By stage: the seconds of its functions, with what the profiler took of it, and the calls that it took it for."""

    seconds: dict[str, float] = field(factory=lambda: dict.fromkeys(STAGES, 0.0))
    calls: dict[str, float] = field(factory=lambda: dict.fromkeys(STAGES, 0.0))


def attribute(profile: Profile) -> Attribution:
    """Sum up a profile; what belongs to no stage counts for the stages that called it."""
    owners = _find_owners(profile)
    found = Attribution()
    for function, (_, _, own, _, callers) in profile.items():
        stage = _stage(function)
        rest = own
        for caller, (_, count, seconds, _) in callers.items():
            for name, share in owners[caller].items():
                found.calls[name] += count * share * CALLERS_PART
                found.seconds[stage or name] += seconds * share
                found.calls[stage or name] += count * share * (1 - CALLERS_PART)
            rest -= seconds
        found.seconds[stage or LOOP] += max(rest, 0.0)
    return found


def _stage(function: Function) -> str | None:
    return stage_of(function[0])


def _find_owners(profile: Profile) -> Mapping[Function, Mapping[str, float]]:
    """For each function, the shares of the stages for which it is called."""
    owners: dict[Function, Mapping[str, float]] = defaultdict(lambda: {LOOP: 1.0})
    owners.update({function: {stage: 1.0} for function in profile if (stage := _stage(function)) is not None})
    shared = [function for function in profile if _stage(function) is None and profile[function][4]]
    for _ in range(_PASSES):
        for function in shared:
            callers = profile[function][4]
            total = sum(count for _, count, _, _ in callers.values())
            shares: dict[str, float] = defaultdict(float)
            for caller, (_, count, _, _) in callers.items():
                for stage, share in owners[caller].items():
                    shares[stage] += share * count / total
            owners[function] = shares
    return owners


@frozen
class Spent:
    """The seconds that the main thread of a process had a processor, and those in which it waited for one."""

    running: float
    waiting: float

    @classmethod
    def of(cls, pid: int) -> "Spent":
        """Those of a process until now."""
        running, waiting, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
        return cls(int(running) / 1e9, int(waiting) / 1e9)

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.running - other.running, self.waiting - other.waiting)


def budget(found: Attribution, profiled: Spent, plain: float, garbage: float) -> dict[str, float]:
    """Seconds of each stage without the profiler, which add up to `plain`, what the same load costs without it.

    `profiled` is what it cost with it: what is left of that is the event loop's, which waits as well. Other processes
    on the processor make all stages longer alike. The profiler takes the same time for each call, which is found from
    the difference. `garbage` are the seconds of collections, during calls of any stage.
    """
    had = profiled.running / (profiled.running + profiled.waiting)
    seconds = {stage: value * had for stage, value in found.seconds.items()}
    seconds[LOOP] = max(profiled.running - (sum(seconds.values()) - seconds[LOOP]), 0.0)
    each = max(sum(seconds.values()) - plain, 0.0) / sum(found.calls.values())
    own = {stage: max(seconds[stage] - each * found.calls[stage], 0.0) for stage in STAGES}
    own[GARBAGE] = 0.0
    scale = (plain - garbage) / sum(own.values())
    return {stage: value * scale for stage, value in own.items()} | {GARBAGE: garbage}
