"""A request and a token make no more calls of functions than was agreed on, and not unnoticed far fewer."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from bench.calls import KINDS, Calls, count_calls, least
from bench.ceilings import OTHER_PYTHON, calls_table, complaint, read_ceilings
from bench.stages import CHAIN, ENTRY, LOOP, POLICY, STAGES, TRANSPORT, UVICORN, stage_of
from bench.tally import Steps, Tally
from plugins.order import STANDARD_ORDER

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def counted() -> Calls:
    """The calls of each kind, counted once."""
    return count_calls()


@pytest.mark.parametrize("kind", KINDS)
def test_calls_stay_below_their_ceiling(kind: str, counted: Calls) -> None:
    """Only a commit that raises the number in `calls.toml` may make a request cost more calls."""
    wrong = complaint(kind, counted[kind], read_ceilings()[kind])

    assert wrong is None, wrong


def test_every_plugin_of_the_chain_is_counted(counted: Calls) -> None:
    """The whole standard chain is on while requests are counted.

    What is for other endpoints has no place in it, and what does nothing until it is configured is not called.
    """
    others = ("messages_", "responses_", "early_start")
    for kind in KINDS[:-1]:
        assert {line.name for line in STANDARD_ORDER if not line.name.startswith(others)} <= set(counted[kind])


def test_the_table_has_each_stage_and_the_sum(counted: Calls) -> None:
    """A column of the table adds up to its last line."""
    head, *lines, last = calls_table(counted).splitlines()

    assert head.split() == ["calls", *KINDS]
    assert int(last.split()[-1]) == sum(counted[KINDS[-1]].values())
    assert [line[:22].strip() for line in lines] == [
        stage for stage in STAGES if any(stage in calls for calls in counted.values())
    ]


def call_none() -> None:
    """Call nothing."""


def call_one() -> None:
    """Call one function."""
    call_none()


def call_three() -> None:
    """Call a function of Python, one of C, and a method of C."""
    call_none()
    abs(1)
    [].copy()


def call_seven() -> None:
    """Call functions in a comprehension, which is itself a function in some versions of Python."""
    len([abs(number) for number in (1, 2, 3, 4, 5, 6)])


def calls_of(function: Callable[[], None]) -> int:
    """How many calls a function makes, with its own."""
    tally = Tally()
    tally.start()
    function()
    return tally.stop().total()


def test_one_call_more_is_one_more() -> None:
    """The count is exact, so one function more for a request is above a ceiling."""
    bare = calls_of(call_none)

    assert calls_of(call_one) == bare + 1
    assert calls_of(call_three) == bare + 3
    assert calls_of(call_seven) == bare + 7


def test_all_that_follows_a_step_is_counted() -> None:
    """What a callback leaves for later turns of the loop belongs to the step, and what comes before it does not."""

    async def count(callbacks: int) -> int:
        steps = Steps(asyncio.get_running_loop())

        def later(left: int) -> None:
            if left:
                steps.loop.call_soon(later, left - 1)

        def drive() -> int:
            steps.settle()
            steps.start()
            steps.loop.call_soon_threadsafe(later, callbacks)
            return steps.stop().total()

        return await asyncio.to_thread(drive)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # asyncio's own is of functions that count, too
        first, second, third = (runner.run(count(callbacks)) for callbacks in (1, 2, 3))
    assert 0 < second - first == third - second


def test_what_only_adds_to_the_odd_round_is_left_out() -> None:
    """A timer that comes in between makes a round longer, never shorter."""
    plain, disturbed = Counter({CHAIN: 5, LOOP: 1}), Counter({CHAIN: 5, LOOP: 9})

    assert least([disturbed, plain, disturbed]) == {LOOP: 1, CHAIN: 5}


@pytest.mark.parametrize(
    ("calls", "said"), [(1001, "1 more than"), (1000, None), (946, None), (945, "lower it to 945")]
)
def test_a_ceiling_holds_and_follows(calls: int, said: str | None) -> None:
    """One call too many is refused with a breakdown, and so is a ceiling that has become far too high."""
    wrong = complaint("one_leg", {CHAIN: calls - 1, POLICY: 1}, 1000)

    assert (wrong is None) == (said is None)
    if wrong is not None and said is not None:
        first, *lines = wrong.splitlines()
        assert said in first
        assert [line.split() for line in lines] == [[CHAIN, str(calls - 1)], [POLICY, "1"]]


def test_ceilings_are_of_one_version_of_python(tmp_path: Path) -> None:
    """The standard library counts along, so another version has a few calls to spare."""
    path = tmp_path / "calls.toml"
    path.write_text('python = "2.7"\n[calls]\ntoken = 40\n')

    assert read_ceilings(path) == {"token": 40 + OTHER_PYTHON}
    assert set(read_ceilings()) == set(KINDS)


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        ("kernel/chain.py", CHAIN),
        ("kernel/asgi.py", ENTRY),
        ("plugins/access_log.py", "access_log"),
        ("plugins/early_start/plugin.py", "early_start"),
        ("plugins/dispatch/runner.py", "dispatch"),
        ("plugins/dispatch/transports/lean/client.py", TRANSPORT),
        ("plugins/sse/events.py", None),
        (".venv/lib/python3.11/site-packages/uvicorn/server.py", UVICORN),
        (".venv/lib/python3.11/site-packages/attr/_make.py", None),
    ],
)
def test_a_file_has_its_stage(file: str, stage: str | None) -> None:
    """Code that several stages share has none of its own."""
    assert stage_of(str(ROOT / file)) == stage
