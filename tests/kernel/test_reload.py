"""Reload: one swap or none, with the plugins that did not change carried over."""

import asyncio

import pytest

from kernel import KernelError
from tests.kernel.parts import Heir
from tests.kernel.stage import Stage
from tests.kernel.support import turn

pytestmark = pytest.mark.anyio


@pytest.fixture
async def running(stage: Stage) -> Stage:
    """A runtime that was started with defaults."""
    await stage.runtime.start()
    stage.take_journal()
    return stage


async def test_a_reload_swaps_the_chain(running: Stage) -> None:
    """The next request is served by the new one."""
    assert await running.reload(answer={"text": "new"}) == ()
    assert await running.ask() == "new"
    assert running.runtime.refused == ()


async def test_a_plugin_whose_configuration_did_not_change_is_carried_over(running: Stage) -> None:
    """With its state: it is neither started again nor stopped."""
    before = running.runtime.serving.plugins
    await running.reload(left="b")
    after = running.runtime.serving.plugins
    await turn()
    assert after["right"] is before["right"]
    assert after["left"] is not before["left"]
    assert running.journal == ["start left b", "stop left a"]


async def test_a_configuration_that_says_the_default_is_no_change(running: Stage) -> None:
    """What counts is the plugin that comes of it."""
    before = running.runtime.serving.plugins
    await running.reload(left="a")
    assert running.runtime.serving.plugins["left"] is before["left"]
    assert running.journal == []


async def test_a_plugin_that_is_switched_off_stops_and_one_that_is_switched_on_starts(running: Stage) -> None:
    """When no exchange runs on the old chain any more."""
    await running.reload(left=None)
    await turn()
    assert running.take_journal() == ["stop left a"]
    await running.reload()
    assert running.take_journal() == ["start left a"]


@pytest.mark.parametrize(
    "text",
    [
        "plugins: [",
        "plugins: {nothing: {}}",
        "plugins: {left: {config: {labl: x}}}",
        "plugins: {left: {config: {label: 1}}}",
        "plugins: {left: {before: right}}",
        "plugin: {}",
        "plugins: {left: {config: {label: b, fail: start}}}",
        "plugins: {heir: {config: {label: b, fail: succeed}}}",
    ],
)
async def test_a_reload_that_is_refused_changes_nothing(running: Stage, text: str) -> None:
    """The problems are returned and kept to be shown; the same assembly serves on."""
    before = running.runtime.serving
    running.text = text
    problems = await running.runtime.reload()
    assert problems
    assert problems == running.runtime.refused
    assert running.runtime.serving is before
    assert await running.ask() == "answer"
    await turn()
    assert {line for line in running.journal if line.startswith("stop") and line.endswith(" a")} == set()
    assert "start left b" not in running.journal or "stop left b" in running.journal


async def test_a_refused_reload_does_not_stop_what_is_shared(running: Stage) -> None:
    """Only what it had started itself."""
    await running.reload(left="b", right={"label": "b", "fail": "start"})
    assert running.journal == ["start left b", "start right b", "stop right b", "stop left b"]


async def test_after_a_refusal_a_good_file_is_accepted(running: Stage) -> None:
    """And the problems are forgotten."""
    assert await running.reload(nothing="x")
    assert await running.reload(answer={"text": "new"}) == ()
    assert running.runtime.refused == ()
    assert await running.ask() == "new"


async def test_reloads_are_counted_by_how_they_went(running: Stage) -> None:
    """The distribution's telemetry hears of each."""
    await running.reload(left="b")
    await running.reload(nothing="x")
    await running.reload(left="b")
    assert running.telemetry.reloads == [True, False, True]


async def test_a_plugin_takes_over_from_its_predecessor(running: Stage) -> None:
    """Before it starts, and only where its configuration changed."""
    heir = running.runtime.serving.plugins["heir"]
    assert isinstance(heir, Heir)
    heir.kept["connection"] = "open"
    await running.reload(heir="b")
    after = running.runtime.serving.plugins["heir"]
    assert isinstance(after, Heir)
    assert after.kept == {"connection": "open"}
    await turn()
    assert running.take_journal() == ["succeed b after a", "start heir b", "stop heir a"]
    await running.reload(heir="b", left="b")
    assert "start heir b" not in running.journal


async def test_a_plugin_that_was_off_has_no_predecessor(running: Stage) -> None:
    """It starts anew."""
    await running.reload(heir=None)
    await running.reload()
    assert not any(line.startswith("succeed") for line in running.journal)


async def test_reloads_do_not_overlap(running: Stage) -> None:
    """The second waits for the first and builds on it."""
    gate = running.gate("start left b")
    first = asyncio.create_task(running.reload(left="b"))
    await turn()
    second = asyncio.create_task(running.reload(left="c"))
    await turn()
    assert running.take_journal() == ["start left b"]
    assert await running.ask() == "answer"
    gate.set()
    assert [*await first, *await second] == []
    await turn()
    assert sorted(running.journal) == ["start left c", "stop left a", "stop left b"]


async def test_a_reload_that_is_cancelled_changes_nothing(running: Stage) -> None:
    """What it had started is stopped, and the next one is not blocked."""
    running.gate("start right b")
    reloading = asyncio.create_task(running.reload(left="b", right="b"))
    await turn()
    reloading.cancel()
    await asyncio.wait((reloading,))
    assert await running.ask() == "answer"
    assert running.take_journal() == ["start left b", "start right b", "stop right b", "stop left b"]
    assert await running.reload(answer={"text": "new"}) == ()


async def test_a_runtime_that_was_not_started_does_not_reload(stage: Stage) -> None:
    """It says so."""
    with pytest.raises(KernelError, match="the runtime "):
        await stage.runtime.reload()


async def test_a_stop_during_a_reload_stops_the_new_plugins_too(running: Stage) -> None:
    """The reload is not to bring back to life what was stopped."""
    gate = running.gate("start left b")
    reloading = asyncio.create_task(running.reload(left="b"))
    await turn()
    stopping = asyncio.create_task(running.runtime.stop())
    await turn()
    gate.set()
    await asyncio.wait((reloading, stopping))
    reloading.exception()
    await turn()
    with pytest.raises(KernelError):
        _ = running.runtime.serving
    assert {"stop left a", "stop left b", "stop right a", "stop heir a"} <= {*running.journal}
