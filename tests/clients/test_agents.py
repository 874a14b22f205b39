"""Claude Code and Codex through the kernel, from the first turn to a worker that is killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.agents import CLAUDE, CODEX, Agent
from tests.clients.tap import Tap, tapped
from tests.clients.world import WAYS, World
from tests.e2e.programs import until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("noted"),
    pytest.mark.parametrize("way", WAYS),
]

GREETINGS = {"HEAD /api/hello": {200}, "HEAD /": {200}}
"""What Claude Code asks before anything else, by its version."""

TEXT = "Done: hi there."

agents = pytest.mark.parametrize("row", [CLAUDE, CODEX], ids=lambda agent: agent.name)


def case(name: str) -> pytest.MarkDecorator:
    """The case in the table that a test is."""
    return pytest.mark.parametrize("case", [name])


@pytest.fixture
def tap(served: World) -> Iterator[Tap]:
    """What the agent asks, all of it."""
    with tapped(served.kernel.url) as made:
        yield made


def check_asked(tap: Tap, row: Agent, *statuses: int) -> None:
    """Check that the agent asked what it was meant to, got these statuses, and was denied nothing else it wanted."""
    found = {name: got for name, got in tap.statuses().items() if GREETINGS.get(name) != got}
    assert found == {row.asks: {*statuses}}


@agents
@case("stream")
def test_a_turn(tmp_path: Path, tap: Tap, row: Agent, case: str, way: str) -> None:
    """The agent says what the model said."""
    outcome = row.run(tmp_path, tap.url, way, f"Hello [says {TEXT}]")

    assert (outcome.code, outcome.text, outcome.failed) == (0, TEXT, False), outcome
    check_asked(tap, row, 200)


@agents
@case("tool")
def test_a_tool_loop(tmp_path: Path, tap: Tap, row: Agent, case: str, way: str) -> None:
    """The agent runs the command that the model wants run, and the model goes on when it sees that it was."""
    call = f'[calls {row.tool} {{"{row.field}": "echo hi > told"}}]'
    outcome = row.run(tmp_path, tap.url, way, f"{call} [says {TEXT}]")

    assert (outcome.code, outcome.text, outcome.failed) == (0, TEXT, False), outcome
    assert (tmp_path / "told").read_text() == "hi\n"
    check_asked(tap, row, 200)


@agents
@case("bad")
def test_a_model_that_is_not_there(tmp_path: Path, tap: Tap, row: Agent, case: str, way: str) -> None:
    """The user reads that, with the name."""
    outcome = row.run(tmp_path, tap.url, f"nobody-{way}", "Hello")

    assert (outcome.code, outcome.failed) == (1, True), outcome
    assert f"nobody-{way}" in outcome.text
    assert "exist" in outcome.text
    check_asked(tap, row, 404)


@agents
@case("long")
def test_a_prompt_that_is_too_long(tmp_path: Path, tap: Tap, row: Agent, case: str, way: str) -> None:
    """The user reads that in the agent's own words, so the agent knows what it is."""
    outcome = row.run(tmp_path, tap.url, f"short-{way}", "Hello")

    assert (outcome.code, outcome.failed) == (1, True), outcome
    assert {"Claude Code": "Prompt is too long", "Codex": "ran out of room in the model's context"}[
        row.name
    ] in outcome.text
    check_asked(tap, row, 400)


@agents
@case("killed")
def test_a_worker_that_is_killed_in_mid_stream(
    tmp_path: Path, served: World, tap: Tap, row: Agent, case: str, way: str
) -> None:
    """The run fails and says so; half an answer is never taken for one."""
    with served.mortal(way, after=12) as model:
        outcome = row.run(tmp_path, tap.url, model, "Count")

    assert (outcome.code, outcome.failed) == (1, True), outcome
    statuses = tap.statuses()
    assert statuses[row.asks] - {502, 503} == {200}  # Claude Code asks once more, and is told that nobody is there
    assert {*statuses} <= {row.asks, *GREETINGS}


@agents
@case("leave")
def test_a_run_that_is_broken_off(tmp_path: Path, served: World, tap: Tap, row: Agent, case: str, way: str) -> None:
    """Nobody works for it any more, and the log says that it left."""
    series = f'kernel_requests_in_flight{{endpoint="{row.endpoint}"}}'
    before = len(served.finished())
    with row.running(tmp_path, tap.url, way, "Count") as process:
        until(lambda: served.kernel.metric(series) == 1, seconds=60)
        os.killpg(process.pid, signal.SIGKILL)

    until(lambda: len(served.finished()) > before)
    assert {line["outcome"] for line in served.finished()[before:]} == {"client_gone"}
    until(served.idle)


@pytest.mark.parametrize("row", [CLAUDE], ids=lambda agent: agent.name)
@case("count")
def test_how_full_the_context_is(tmp_path: Path, tap: Tap, row: Agent, case: str, way: str) -> None:
    """Claude Code counts dozens of prompts at the same time, and is told of each."""
    outcome = row.run(tmp_path, tap.url, way, "/context")

    assert (outcome.code, outcome.failed) == (0, False), outcome
    counted = tap.statuses().pop("POST /v1/messages/count_tokens?beta=true")
    assert counted == {200}
    assert len(tap.seen) > 10
