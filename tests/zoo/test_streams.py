"""Broken plugins in a stream: an error event in the API's dialect, or a cut, never an end that looks whole."""

import json
from typing import Any

import pytest

from tests.kernel.support import Request, Shelf
from tests.zoo.habitat import CHUNKS, INTERNAL, Habitat, ask, assert_serves, error_of

pytestmark = pytest.mark.anyio

DONE = "data: [DONE]"


def last_event(answer: Request) -> Any:
    """The data of the last event."""
    return json.loads(answer.text.rstrip("\n").rpartition("\n\n")[2].removeprefix("data: "))


def faults(logged: list[Any]) -> list[str | None]:
    """The plugins that faults are logged of."""
    return [line["plugin"] for line in logged if line["event"] == "plugin.failed"]


async def bite(shelf: Shelf, animal: str, where: str) -> Request:
    """The answer to a request at which the animal bites."""
    runtime = Habitat(shelf, f"streamers:{animal}").runtime()
    await runtime.start()
    answer = await ask(runtime, bite=where, stream=True)
    await assert_serves(runtime)
    return answer


@pytest.mark.parametrize(("animal", "where"), [("INSIDE", "step"), ("OUTSIDE", "step"), ("INSIDE", "late step")])
async def test_a_fault_in_a_stream_is_an_error_event(shelf: Shelf, logged: list[Any], animal: str, where: str) -> None:
    """The answer ends with it and not with a terminal event, and one line of the log names the plugin."""
    answer = await bite(shelf, animal, where)
    assert (answer.status, answer.ended) == (200, True)
    assert last_event(answer) == INTERNAL
    assert DONE not in answer.text
    assert faults(logged) == ["animal"]


@pytest.mark.parametrize("animal", ["INSIDE", "OUTSIDE"])
async def test_a_check_that_raises_is_a_fault_of_its_plugin(shelf: Shelf, logged: list[Any], animal: str) -> None:
    """Though the client has had the whole answer by then."""
    answer = await bite(shelf, animal, "check")
    assert answer.text.startswith(b"".join(CHUNKS).decode())
    assert "secret" not in answer.text
    assert faults(logged) == ["animal"]


async def test_a_terminal_event_that_was_lost_outside_the_guard_is_no_clean_end(
    shelf: Shelf, logged: list[Any]
) -> None:
    """The guard saw the stream end well; the client must not."""
    answer = await bite(shelf, "OUTSIDE", "late step")
    assert DONE not in answer.text
    assert not answer.ended or "error" in last_event(answer)
    assert faults(logged) == ["animal"]


@pytest.mark.parametrize("where", ["source", "source of text", "step returns text", "no source"])
async def test_a_source_that_breaks_is_an_error_event(shelf: Shelf, logged: list[Any], where: str) -> None:
    """Also one that gives what is no bytes."""
    answer = await bite(shelf, "INSIDE", where)
    assert (answer.status, answer.ended) == (200, True)
    assert last_event(answer) == INTERNAL
    assert DONE not in answer.text
    assert len(faults(logged)) == 1


async def test_a_step_that_loses_everything_is_no_clean_end(shelf: Shelf) -> None:
    """Inside the guard the terminal event is missed."""
    answer = await bite(shelf, "INSIDE", "step returns nothing")
    assert answer.ended
    assert "error" in last_event(answer)


@pytest.mark.parametrize("animal", ["INSIDE", "OUTSIDE"])
async def test_a_close_that_raises_is_a_fault_of_its_plugin(shelf: Shelf, logged: list[Any], animal: str) -> None:
    """Though the client has had the whole answer by then."""
    answer = await bite(shelf, animal, "close")
    assert answer.text.startswith(b"".join(CHUNKS).decode())
    assert "secret" not in answer.text
    assert set(faults(logged)) == {"animal"}


@pytest.mark.parametrize("animal", ["INSIDE", "OUTSIDE", "OBSERVER"])
async def test_an_end_that_raises_is_logged(shelf: Shelf, logged: list[Any], animal: str) -> None:
    """The client has its answer."""
    answer = await bite(shelf, animal, "end")
    assert (answer.text, answer.ended) == (b"".join(CHUNKS).decode(), True)
    assert faults(logged) == ["animal"]


@pytest.mark.parametrize("where", ["step", "late step", "check", "close", "end"])
async def test_without_a_broken_observer_the_stream_goes_on(shelf: Shelf, logged: list[Any], where: str) -> None:
    """Whole."""
    answer = await bite(shelf, "OBSERVER", where)
    assert (answer.status, answer.text, answer.ended) == (200, b"".join(CHUNKS).decode(), True)
    assert faults(logged) == ["animal"]


async def test_a_stream_that_was_begun_and_dropped_is_a_fault_before_the_first_byte(
    shelf: Shelf, logged: list[Any]
) -> None:
    """So the client gets a real status."""
    answer = await bite(shelf, "INSIDE", "dropped")
    assert (answer.status, error_of(answer)) == (500, INTERNAL)
    assert faults(logged) == ["animal"]
