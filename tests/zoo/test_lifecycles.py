"""Broken plugins as they start, stop, take over and are asked whether they are ready."""

import asyncio
from typing import Any

import pytest

from tests.kernel.support import Shelf, turn
from tests.zoo.broken.lifecycles import BaseFault
from tests.zoo.habitat import Habitat, assert_serves, problem_of

pytestmark = pytest.mark.anyio


async def test_a_plugin_that_does_not_start_is_one_error(shelf: Shelf) -> None:
    """With its cause."""
    habitat = Habitat(shelf, "lifecycles:ALIVE", "plugins: {animal: {config: {at_start: raise}}}")
    assert await problem_of(habitat) == "plugin 'animal' did not start: OSError: the port is taken"


@pytest.mark.parametrize("when", ["at_start", "at_making"])
async def test_a_plugin_that_exits_ends_no_kernel(shelf: Shelf, when: str) -> None:
    """A reload is refused, as for any other plugin that does not start."""
    habitat = Habitat(shelf, "lifecycles:ALIVE", f"plugins: {{animal: {{config: {{{when}: exit}}}}}}")
    assert (await problem_of(habitat)).endswith("SystemExit: no license")


async def test_a_start_that_ends_in_more_than_an_exception_ends_the_start(shelf: Shelf) -> None:
    """It is not made an error of the configuration."""
    habitat = Habitat(shelf, "lifecycles:ALIVE", "plugins: {animal: {config: {at_start: fault}}}")
    with pytest.raises(BaseFault):
        await habitat.runtime().start()


async def test_a_start_that_hangs_holds_up_the_reload_alone(shelf: Shelf) -> None:
    """The kernel sets no limit: only the plugin knows how long its start may take. The old chain serves on."""
    habitat = Habitat(shelf, "lifecycles:ALIVE")
    runtime = habitat.runtime()
    await runtime.start()
    before = runtime.serving
    habitat.text = "plugins: {animal: {config: {at_start: hang}}}"
    reloading = asyncio.create_task(runtime.reload())
    await turn()
    await assert_serves(runtime)
    assert not reloading.done()
    reloading.cancel()
    await asyncio.wait((reloading,))
    assert runtime.serving is before
    await assert_serves(runtime)


@pytest.mark.parametrize("how", ["raise", "hang"])
async def test_a_plugin_that_does_not_stop_holds_up_no_request(shelf: Shelf, how: str) -> None:
    """A reload takes it out all the same."""
    habitat = Habitat(shelf, "lifecycles:ALIVE", f"plugins: {{animal: {{config: {{at_stop: {how}}}}}}}")
    runtime = habitat.runtime()
    await runtime.start()
    habitat.text = ""
    assert await runtime.reload() == ()
    await turn()
    await assert_serves(runtime)


async def test_a_plugin_that_raises_as_it_stops_does_not_keep_the_runtime_running(
    shelf: Shelf, logged: list[Any]
) -> None:
    """It is logged."""
    runtime = Habitat(shelf, "lifecycles:ALIVE", "plugins: {animal: {config: {at_stop: raise}}}").runtime()
    await runtime.start()
    await runtime.stop()
    assert "plugin.stop_failed" in [line["event"] for line in logged]


async def test_a_start_that_cannot_be_awaited_is_an_error(shelf: Shelf) -> None:
    """It may have started or not."""
    habitat = Habitat(shelf, "lifecycles:SYNCHRONOUS", "plugins: {animal: {config: {at_start: odd}}}")
    assert "plugin 'animal' did not start: TypeError" in await problem_of(habitat)


async def test_a_stop_that_cannot_be_awaited_does_not_keep_the_runtime_running(shelf: Shelf, logged: list[Any]) -> None:
    """It is logged."""
    runtime = Habitat(shelf, "lifecycles:SYNCHRONOUS").runtime()
    await runtime.start()
    await runtime.stop()
    assert runtime.unready() == ["not started"]
    assert "plugin.stop_failed" in [line["event"] for line in logged]


async def test_a_plugin_that_cannot_succeed_refuses_the_reload(shelf: Shelf) -> None:
    """The old one serves on."""
    habitat = Habitat(shelf, "lifecycles:ALIVE")
    runtime = habitat.runtime()
    await runtime.start()
    habitat.text = "plugins: {animal: {config: {at_succession: raise}}}"
    assert await runtime.reload() == ("plugin 'animal' did not start: ValueError: no heir of that one",)
    await assert_serves(runtime)


async def test_a_plugin_that_cannot_say_whether_it_is_ready_is_not(shelf: Shelf) -> None:
    """The reason names it, and the others are asked."""
    runtime = Habitat(shelf, "lifecycles:ALIVE", "plugins: {animal: {config: {at_question: raise}}}").runtime()
    await runtime.start()
    (reason,) = runtime.unready()
    assert "animal" in reason
