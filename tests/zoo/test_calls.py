"""Broken plugins at the call of a request: the documented answer, one log line, and the next request is served."""

import asyncio
import json
from typing import Any

import pytest

from kernel import exchange as kernel_exchange
from tests.kernel.support import Shelf, turn
from tests.zoo.habitat import INTERNAL, Habitat, ask, assert_serves, error_of, request

pytestmark = pytest.mark.anyio

FAULTS = [
    ("RAISES_BEFORE", "ValueError"),
    ("RAISES_AFTER", "ValueError"),
    ("CALLS_TWICE", "plugin 'animal' called call_next twice"),
    ("CALLS_TWICE_AT_ONCE", "plugin 'animal' called call_next twice"),
    ("RETURNS_NONE", "plugin 'animal' returned NoneType, not a Reply"),
    ("RETURNS_TEXT", "plugin 'animal' returned str, not a Reply"),
    ("RETURNS_COROUTINE", "plugin 'animal' returned Task, not a Reply"),
]


def faults(logged: list[Any]) -> list[Any]:
    """The log lines of faults."""
    return [line for line in logged if line["event"] == "plugin.failed"]


@pytest.mark.parametrize(("animal", "cause"), FAULTS)
async def test_a_fault_is_a_500_in_the_apis_envelope(shelf: Shelf, logged: list[Any], animal: str, cause: str) -> None:
    """The client learns nothing of it; one line of the log names the plugin and has the cause."""
    runtime = Habitat(shelf, f"callers:{animal}").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert (answer.status, error_of(answer)) == (500, INTERNAL)
    assert "secret" not in answer.text
    (line,) = faults(logged)
    assert line["plugin"] == "animal"
    assert cause in repr(line["exc_info"])
    await assert_serves(runtime)


@pytest.mark.parametrize("animal", ["OBSERVER_RAISES_BEFORE", "OBSERVER_RAISES_AFTER", "OBSERVER_RETURNS_NONE"])
@pytest.mark.parametrize("stream", [False, True])
async def test_without_a_broken_observer_the_chain_goes_on(
    shelf: Shelf, logged: list[Any], animal: str, stream: bool
) -> None:
    """The client notices nothing, the log does."""
    runtime = Habitat(shelf, f"callers:{animal}").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes", stream=stream)
    assert (answer.status, answer.ended) == (200, True)
    (line,) = faults(logged)
    assert (line["plugin"], line["went_on"]) == ("animal", True)
    await assert_serves(runtime)


async def test_a_rejection_is_the_plugins_own_answer(shelf: Shelf, logged: list[Any]) -> None:
    """In the API's envelope, with its headers; it is not a fault."""
    runtime = Habitat(shelf, "callers:DECLINES").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert (answer.status, answer.header("retry-after")) == (451, "9")
    assert error_of(answer)["error"]["message"] == "not here"
    assert error_of(answer)["error"]["code"] == "law"
    assert faults(logged) == []
    await assert_serves(runtime)


async def test_a_plugin_may_answer_by_itself(shelf: Shelf) -> None:
    """Then nothing further in runs, and its reply is encoded as any other: here that is left to nobody."""
    runtime = Habitat(shelf, "callers:SWALLOWS_ERRORS").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert answer.status == 500  # a DataReply outside encode_reply has nobody to encode it
    await assert_serves(runtime)


@pytest.mark.parametrize("animal", ["NEVER_CALLS_ON", "UNENCODABLE", "OUTERMOST_SENDS_DATA", "OUTERMOST_RAISES"])
async def test_outside_the_envelope_the_kernels_constant_is_the_answer(
    shelf: Shelf, logged: list[Any], animal: str
) -> None:
    """Also for data that nothing further out encodes."""
    runtime = Habitat(shelf, f"callers:{animal}").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert (answer.status, answer.text) == (500, '{"error":"internal server error"}')
    assert len(faults(logged)) == 1
    await assert_serves(runtime)


async def test_outside_the_envelope_a_rejection_is_its_own_text(shelf: Shelf) -> None:
    """The kernel knows no envelope."""
    runtime = Habitat(shelf, "callers:OUTERMOST_DECLINES").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert (answer.status, answer.text, answer.header("retry-after")) == (451, "not here", "9")
    await assert_serves(runtime)


async def test_nonsense_in_the_slots_of_others_hurts_one_request(shelf: Shelf, logged: list[Any]) -> None:
    """Whoever stumbles over it is logged; slots are an exchange's own."""
    runtime = Habitat(shelf, "callers:NONSENSE_IN_SLOTS").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert (answer.status, error_of(answer)) == (500, INTERNAL)
    assert len(faults(logged)) == 1
    await assert_serves(runtime)


async def test_a_client_that_is_said_to_be_gone_gets_no_answer(shelf: Shelf, logged: list[Any]) -> None:
    """The server closes the connection, or says something itself; no error is logged."""
    runtime = Habitat(shelf, "callers:CLAIMS_CLIENT_GONE").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert (answer.status, answer.chunks) == (None, [])
    assert faults(logged) == []
    await assert_serves(runtime)


@pytest.mark.parametrize("animal", ["RAISES_BASE", "CANCELS_ITSELF"])
async def test_what_is_no_exception_ends_the_request(shelf: Shelf, animal: str) -> None:
    """It passes every plugin and goes to the server, after everything was given back."""
    runtime = Habitat(shelf, f"callers:{animal}").runtime()
    await runtime.start()
    running = asyncio.create_task(ask(runtime, bite="yes"))
    await asyncio.wait((running,))
    assert running.cancelled() or type(running.exception()).__name__ == "BaseFault"
    await assert_serves(runtime)


async def test_a_swallowed_cancellation_keeps_the_server_from_nothing(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request ends with whatever it makes of it; its client is gone."""
    from kernel import race

    monkeypatch.setattr(race, "WATCH_DELAY_SECONDS", 0)
    runtime = Habitat(shelf, "callers:SWALLOWS_CANCELLATION").runtime()
    await runtime.start()
    biting = request(runtime, bite="yes")
    running = asyncio.create_task(biting.run())
    await turn(20)
    biting.hang_up()
    await asyncio.wait((running,))
    assert running.exception() is None
    await assert_serves(runtime)


async def test_what_is_given_back_badly_is_logged(shelf: Shelf, logged: list[Any]) -> None:
    """The client has its answer, and everything else is given back."""
    runtime = Habitat(shelf, "callers:GIVES_BACK_BADLY").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert (answer.status, json.loads(answer.text)) == (200, {"answer": True})
    assert [line["event"] for line in logged].count("resource.release_failed") == 3
    assert [line["event"] for line in logged].count("request.finished") == 1
    await assert_serves(runtime)


async def test_what_is_never_given_back_is_given_up(
    shelf: Shelf, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a limited time."""
    monkeypatch.setattr(kernel_exchange, "RELEASE_SECONDS", 0.01)
    runtime = Habitat(shelf, "callers:NEVER_GIVES_BACK").runtime()
    await runtime.start()
    answer = await ask(runtime, bite="yes")
    assert answer.status == 200
    assert "resource.release_failed" in [line["event"] for line in logged]
    await assert_serves(runtime)
