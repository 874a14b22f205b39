"""The runtime: building and starting an assembly, readiness, telemetry, stopping."""

import asyncio

import pytest

from kernel import ConfigError, KernelError, OrderError, Rejection, build
from plugins.configuration import Document
from tests.kernel.parts import Left
from tests.kernel.stage import Stage
from tests.kernel.support import standard_of, turn

pytestmark = pytest.mark.anyio

STARTED = ["start heir a", "start left a", "start right a"]
STOPPED = ["stop right a", "stop left a", "stop heir a"]


async def problems_of(stage: Stage) -> tuple[str, ...]:
    """Why the runtime does not start."""
    with pytest.raises(ConfigError) as caught:
        await stage.runtime.start()
    return caught.value.problems


async def test_an_assembly_is_built_of_order_and_file(stage: Stage) -> None:
    """Plugins have the configuration that the file gives them."""
    stage.write(left="b")
    await stage.runtime.start()
    serving = stage.runtime.serving
    assert [place.name for place in serving.places] == ["left", "heir", "right", "answer"]
    assert serving.plugins["left"] == Left("b")
    assert serving.extensions["left"].distribution == "parts"
    assert await stage.ask() == "answer"


async def test_every_plugin_is_started_before_the_first_request(stage: Stage) -> None:
    """And stopped in reverse; one without a lifecycle needs none."""
    await stage.runtime.start()
    assert sorted(stage.take_journal()) == STARTED
    await stage.runtime.stop()
    assert sorted(stage.journal) == sorted(STOPPED)


async def test_plugins_stop_in_the_reverse_of_their_start(stage: Stage) -> None:
    """So that one that was started on top of another is stopped before it."""
    await stage.runtime.start()
    started = [line.removeprefix("start ") for line in stage.take_journal()]
    await stage.runtime.stop()
    assert [line.removeprefix("stop ") for line in stage.journal] == started[::-1]


async def test_a_plugin_that_is_off_is_neither_made_nor_started(stage: Stage) -> None:
    """Nor asked whether it is ready."""
    stage.write(left=None, right="unready")
    await stage.runtime.start()
    assert "left" not in stage.runtime.serving.plugins
    assert stage.runtime.unready() == ["right is unready"]
    assert sorted(stage.take_journal()) == ["start heir a", "start right unready"]


@pytest.mark.parametrize("broken", ["left", "heir", "right"])
async def test_a_start_that_fails_stops_what_was_started(stage: Stage, broken: str) -> None:
    """Also the plugin itself; the error names it and its cause."""
    stage.write(**{broken: {"fail": "start"}})
    assert await problems_of(stage) == (f"plugin {broken!r} did not start: ValueError: cannot start",)
    started = [line.removeprefix("start ") for line in stage.journal if line.startswith("start")]
    stopped = [line.removeprefix("stop ") for line in stage.journal if line.startswith("stop")]
    assert stopped == started[::-1]
    assert f"{broken} a" in started
    with pytest.raises(KernelError):
        _ = stage.runtime.serving


async def test_a_start_that_is_cancelled_stops_what_was_started(stage: Stage) -> None:
    """As when the process is told to end while it starts."""
    stage.gate("start right a")
    starting = asyncio.create_task(stage.runtime.start())
    await turn()
    assert "start right a" in stage.journal
    starting.cancel()
    await asyncio.wait((starting,))
    assert starting.cancelled()
    assert sorted(stage.journal) == sorted([*STARTED, *STOPPED])


async def test_a_stop_that_fails_does_not_keep_the_others_from_stopping(stage: Stage) -> None:
    """It is logged."""
    stage.write(right={"fail": "stop"}, left={"fail": "stop"})
    await stage.runtime.start()
    stage.take_journal()
    await stage.runtime.stop()
    assert sorted(stage.journal) == sorted(STOPPED)


async def test_a_stop_that_ends_cancelled_does_not_keep_the_others_from_stopping(stage: Stage) -> None:
    """As one does that cancels a task of its own and waits for its end."""
    stage.write(right={"fail": "stop cancelled"}, left={"fail": "stop cancelled"})
    await stage.runtime.start()
    stage.take_journal()
    await stage.runtime.stop()
    assert sorted(stage.journal) == sorted(STOPPED)


async def test_every_problem_of_the_file_is_reported_at_once(stage: Stage) -> None:
    """Of the kernel's own keys, or else of all plugins, in an order that does not change."""
    stage.text = "plugins:\n  lefft: {}\n  zzz: {}\n  right: {config: {labl: x}}\n  answer: {config: {text: 1}}\n"
    problems = await problems_of(stage)
    assert len(problems) == 4
    assert problems[0].startswith("kernel.yaml:2: plugins.lefft: no such plugin, did you mean 'left'?")
    assert problems[1].startswith("kernel.yaml:3: plugins.zzz: no such plugin; there is ")
    assert "kernel.yaml:4: plugins.right.config.labl: unknown key 'labl', did you mean 'label'?" in problems
    assert "kernel.yaml:5: plugins.answer.config.text: expected str, got 1" in problems


async def test_problems_stand_in_the_same_order_every_time(stage: Stage) -> None:
    """Whatever the process's hash seed makes of a set."""
    names = [f"unknown_{number:02}" for number in range(20)]
    stage.text = "plugins:\n" + "".join(f"  {name}: {{}}\n" for name in names)
    problems = await problems_of(stage)
    assert [problem.split(": ")[1] for problem in problems] == [f"plugins.{name}" for name in names]


async def test_an_order_that_cannot_be_is_refused(stage: Stage) -> None:
    """With the order's own error."""
    stage.text = "plugins: {left: {before: right}}"
    with pytest.raises(OrderError, match="plugin 'left' is a standard one and cannot be moved"):
        await stage.runtime.start()


async def test_a_file_that_cannot_be_read_is_refused(stage: Stage) -> None:
    """Nothing is started."""
    stage.text = "plugins: ["
    assert (await problems_of(stage))[0].startswith("kernel.yaml:1: ")
    assert stage.journal == []


async def test_a_standard_plugin_that_is_not_installed_is_missed(stage: Stage) -> None:
    """By name, as long as nobody switched it off."""
    standard = standard_of("left", "absent", "answer")
    with pytest.raises(OrderError, match="plugin 'absent' of the standard order is not installed"):
        build(standard, Document.parse("", "kernel.yaml"))
    built = build(standard, Document.parse("plugins: {absent: {enabled: false}}", "kernel.yaml"))
    assert [place.on for place in built.places] == [True, False, True]


async def test_a_runtime_is_ready_when_every_plugin_is(stage: Stage) -> None:
    """Before the start it is not; reasons of all plugins come together."""
    assert stage.runtime.unready() == ["not started"]
    stage.write(left="unfit", right="unwell")
    await stage.runtime.start()
    assert sorted(stage.runtime.unready()) == ["left is unfit", "right is unwell"]
    await stage.reload(left="fit")
    assert stage.runtime.unready() == []
    await stage.runtime.stop()
    assert stage.runtime.unready() == ["not started"]


async def test_an_interruption_reaches_every_exchange(stage: Stage) -> None:
    """Each ends with the reason; a runtime without any is not troubled."""
    reason = Rejection(503, "shutting down")
    stage.runtime.interrupt(reason)
    await stage.runtime.start()
    held = [stage.hold(str(number))[0] for number in range(5)]
    await turn()
    stage.runtime.interrupt(reason)
    assert {(request.status, request.text) for request in await asyncio.gather(*held)} == {(503, "shutting down")}
    assert await stage.ask() == "answer"


async def test_an_interruption_reaches_exchanges_of_a_runtime_that_stops(stage: Stage) -> None:
    """They are what a shutdown waits for."""
    await stage.runtime.start()
    held, _ = stage.hold("1")
    await turn()
    stopping = asyncio.create_task(stage.runtime.stop())
    await turn()
    assert not stopping.done()
    stage.runtime.interrupt(Rejection(503, "shutting down"))
    await stopping
    assert (await held).status == 503
    assert sorted(stage.journal[3:]) == sorted(STOPPED)


async def test_a_runtime_can_be_started_again(stage: Stage) -> None:
    """With new plugins."""
    await stage.runtime.start()
    await stage.runtime.stop()
    await stage.runtime.stop()
    await stage.runtime.start()
    assert await stage.ask() == "answer"
