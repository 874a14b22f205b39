"""What a stage costs: a profile is attributed to those that called, without what the profiler took itself."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.attribution import CALLERS_PART, Attribution, Function, Profile, Spent, attribute, budget
from bench.budgets import middle, stages_table
from bench.stages import CHAIN, ENTRY, GARBAGE, LOOP, POLICY, STAGES, TRANSPORT
from tests.bench.test_bench import run_bench

ROOT = Path(__file__).parents[2]

RUN: Function = ("asyncio/runners.py", 1, "run")
ASGI: Function = (str(ROOT / "kernel" / "asgi.py"), 1, "__call__")
LEAN: Function = (str(ROOT / "plugins" / "dispatch" / "transports" / "lean" / "client.py"), 1, "send")
SHARED: Function = (str(ROOT / "plugins" / "sse" / "events.py"), 1, "split")
BUILT_IN: Function = ("~", 0, "<method 'get' of 'dict' objects>")


def spent(stages: Mapping[str, float]) -> dict[str, float]:
    """Those stages that cost anything."""
    return {stage: value for stage, value in stages.items() if value}


def profile() -> Profile:
    """The loop calls the kernel, which calls a transport; both call shared code, which calls a function of C."""
    return {
        RUN: (1, 1, 5.0, 15.0, {}),
        ASGI: (10, 10, 2.0, 9.0, {RUN: (10, 10, 2.0, 9.0)}),
        LEAN: (10, 10, 3.0, 6.0, {ASGI: (10, 10, 3.0, 6.0)}),
        SHARED: (40, 40, 4.0, 5.0, {ASGI: (10, 10, 1.0, 2.0), LEAN: (30, 30, 3.0, 3.0)}),
        BUILT_IN: (8, 8, 0.8, 0.8, {SHARED: (8, 8, 0.8, 0.8)}),
    }


def test_shared_code_counts_for_those_that_call_it() -> None:
    """By the time that it took for each of them; further in by how often each has called."""
    found = attribute(profile())

    assert found.seconds[LOOP] == 5.0
    assert found.seconds[ENTRY] == pytest.approx(2.0 + 1.0 + 0.8 / 4)
    assert found.seconds[TRANSPORT] == pytest.approx(3.0 + 3.0 + 0.8 * 3 / 4)
    assert sum(found.seconds.values()) == pytest.approx(sum(own for _, _, own, _, _ in profile().values()))


def test_the_profiler_takes_its_time_for_the_most_part_from_who_calls() -> None:
    """Every call is counted once, in two parts."""
    found = attribute(profile())

    assert sum(found.calls.values()) == pytest.approx(10 + 10 + 40 + 8)
    assert found.calls[LOOP] == pytest.approx(10 * CALLERS_PART)


def test_a_budget_adds_up_to_what_is_needed_without_a_profiler() -> None:
    """Of twelve seconds four are the profiler's, the same for each call, and the loop has what the others leave."""
    found = Attribution()
    found.seconds.update({ENTRY: 6.0, TRANSPORT: 4.0, LOOP: 77.0})
    found.calls.update({ENTRY: 3.0, TRANSPORT: 1.0})

    assert spent(budget(found, Spent(12.0, 0.0), 8.0, 0.0)) == pytest.approx({LOOP: 2.0, ENTRY: 3.0, TRANSPORT: 3.0})


def test_time_without_a_processor_is_nobodys() -> None:
    """With as much waiting as running, every stage took twice as long as it ran."""
    found = Attribution()
    found.seconds.update({ENTRY: 12.0, TRANSPORT: 8.0})
    found.calls.update({ENTRY: 3.0, TRANSPORT: 1.0})

    assert spent(budget(found, Spent(12.0, 12.0), 8.0, 0.0)) == pytest.approx({LOOP: 2.0, ENTRY: 3.0, TRANSPORT: 3.0})


def test_collections_are_a_stage_of_their_own() -> None:
    """They begin in the middle of others, which are the shorter for it; none can be below nothing."""
    found = Attribution()
    found.seconds.update({ENTRY: 6.0, CHAIN: 0.1})
    found.calls.update({ENTRY: 1.0, CHAIN: 3.0})

    assert spent(budget(found, Spent(6.1, 0.0), 4.0, 1.0)) == pytest.approx({ENTRY: 3.0, GARBAGE: 1.0})


def test_rounds_have_a_median_that_adds_up() -> None:
    """To the median of their sums."""
    rounds = [
        dict.fromkeys(STAGES, 0.0) | {LOOP: loop, POLICY: policy}
        for loop, policy in ((2.0, 8.0), (4.0, 8.0), (9.0, 11.0))
    ]

    assert spent(middle(rounds)) == pytest.approx({LOOP: 4.0, POLICY: 8.0})


def test_a_case_is_measured_and_written(tmp_path: Path) -> None:
    """A profile is taken while the kernel answers, and what it says can be read by programs and people."""
    shown = run_bench("stages", "--quick", "--case", "trtllm", "--output", str(tmp_path))
    measured = json.loads(tmp_path.joinpath("stages.json").read_text())

    assert shown == stages_table(measured) + "\n"
    assert list(measured) == ["trtllm"]
    assert measured["trtllm"]["unit"] == "us/request"
    assert all(value >= 0 for value in measured["trtllm"]["stages"].values())
    assert list(measured["trtllm"]["stages"]) == list(STAGES)
