"""Retiring: an assembly stops its plugins after its last exchange, unless a living one shares them."""

import asyncio

import pytest

from tests.kernel.stage import Stage
from tests.kernel.support import turn

pytestmark = pytest.mark.anyio


@pytest.fixture
async def running(stage: Stage) -> Stage:
    """A runtime that was started with defaults."""
    await stage.runtime.start()
    stage.take_journal()
    return stage


async def test_an_exchange_keeps_the_assembly_that_it_began_on(running: Stage) -> None:
    """Its plugins are stopped when it has ended, not before."""
    held, gate = running.hold("1")
    await turn()
    await running.reload(answer={"text": "new"}, left="b")
    await turn()
    assert await running.ask() == "new"
    assert running.take_journal() == ["start left b"]
    gate.set()
    assert (await held).text == "answer"
    await turn()
    assert running.journal == ["stop left a"]


async def test_the_last_of_many_exchanges_lets_go(running: Stage) -> None:
    """In whatever order they end."""
    held = [running.hold(str(number)) for number in range(5)]
    await turn()
    await running.reload(left="b")
    for task, gate in held[::2] + held[1::2]:
        await turn()
        assert "stop left a" not in running.journal
        gate.set()
        await task
    await turn()
    assert running.journal == ["start left b", "stop left a"]


async def test_a_shared_plugin_lives_as_long_as_any_assembly_that_has_it(running: Stage) -> None:
    """A -> B -> C, each with an exchange: `right` is A's and B's, `left` changes each time."""
    first, open_first = running.hold("1")
    await turn()
    await running.reload(left="b")
    second, open_second = running.hold("2")
    await turn()
    await running.reload(left="c", right="c")
    assert running.take_journal() == ["start left b", "start left c", "start right c"]
    open_first.set()
    await first
    await turn()
    assert running.take_journal() == ["stop left a"]
    open_second.set()
    await second
    await turn()
    assert sorted(running.take_journal()) == ["stop left b", "stop right a"]


async def test_assemblies_may_drain_in_the_other_order(running: Stage) -> None:
    """The younger one first: the elder one still holds what both have."""
    first, open_first = running.hold("1")
    await turn()
    await running.reload(left="b")
    second, open_second = running.hold("2")
    await turn()
    await running.reload(left="c", right="c")
    running.take_journal()
    open_second.set()
    await second
    await turn()
    assert running.take_journal() == ["stop left b"]
    open_first.set()
    await first
    await turn()
    assert sorted(running.take_journal()) == ["stop left a", "stop right a"]


async def test_assemblies_that_drain_at_once_stop_each_plugin_once(running: Stage) -> None:
    """Neither twice nor never."""
    first, open_first = running.hold("1")
    await turn()
    await running.reload(left="b")
    second, open_second = running.hold("2")
    await turn()
    await running.reload(left="c", right="c", heir=None)
    running.take_journal()
    open_first.set()
    open_second.set()
    await asyncio.gather(first, second)
    await turn(30)
    assert sorted(running.journal) == ["stop heir a", "stop left a", "stop left b", "stop right a"]


async def test_what_comes_back_is_new(running: Stage) -> None:
    """A configuration of two assemblies ago is another plugin, while the old one still serves."""
    first, open_first = running.hold("1")
    await turn()
    await running.reload(left="b")
    await running.reload(left="a")
    await turn()
    assert running.take_journal() == ["start left b", "start left a", "stop left b"]
    open_first.set()
    await first
    await turn()
    assert running.journal == ["stop left a"]
    await running.runtime.stop()
    assert running.journal.count("stop left a") == 2


async def test_a_plugin_that_hangs_as_it_stops_holds_up_no_other_assembly(running: Stage) -> None:
    """Reloads go on, and so do requests."""
    gate = running.gate("stop left a")
    await running.reload(left="b")
    await turn()
    await running.reload(left="c")
    await turn()
    assert running.journal == ["start left b", "stop left a", "start left c", "stop left b"]
    assert await running.ask() == "answer"
    gate.set()


async def test_a_stop_waits_for_the_last_exchange_of_every_assembly(running: Stage) -> None:
    """Then every plugin has been stopped once."""
    first, open_first = running.hold("1")
    await turn()
    await running.reload(left="b")
    second, open_second = running.hold("2")
    await turn()
    stopping = asyncio.create_task(running.runtime.stop())
    await turn()
    open_second.set()
    await second
    await turn()
    assert not stopping.done()
    open_first.set()
    await asyncio.gather(first, stopping)
    assert sorted(running.journal) == [
        "start left b", "stop heir a", "stop left a", "stop left b", "stop right a",
    ]  # fmt: skip


async def test_a_stop_waits_for_plugins_that_are_still_stopping(running: Stage) -> None:
    """Also those of an assembly that was swapped out before."""
    gate = running.gate("stop left a")
    await running.reload(left="b")
    await turn()
    assert "stop left a" in running.journal
    stopping = asyncio.create_task(running.runtime.stop())
    await turn(30)
    assert not stopping.done()
    gate.set()
    await stopping


async def test_many_reloads_under_load_stop_everything_once(running: Stage) -> None:
    """Whatever the requests that run meanwhile: each plugin that was started is stopped once."""
    for number in range(30):
        held = [running.hold(f"{number}-{index}") for index in range(3)]
        await turn(3)
        await running.reload(left=f"v{number}", right=f"v{number // 4}")
        for task, gate in held:
            gate.set()
            assert (await task).status == 200
    await running.runtime.stop()
    started = sorted(line[6:] for line in running.journal if line.startswith("start "))
    stopped = sorted(line[5:] for line in running.journal if line.startswith("stop "))
    assert stopped == sorted([*started, "heir a", "left a", "right a"])
