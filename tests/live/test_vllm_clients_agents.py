"""Claude Code and Codex, through the kernel to a real vLLM pair, when all is well and when it is not."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.clients.agents import CLAUDE, Agent
from tests.clients.tap import tapped
from tests.live.crowd import AGENTS, DONE, SECONDS, STORY, Crowd, Run
from tests.live.pair import IDLE_SECONDS, Pair
from tests.live.subjects import Alone
from tests.live.worker import MODEL, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200), pytest.mark.usefixtures("noted")]

GREETINGS = {"HEAD /api/hello": {200}, "HEAD /": {200}}
"""What Claude Code asks before anything else, by its version."""


def agents(case: str, *some: Agent) -> Callable[[Any], Any]:
    """Run a test for agents."""
    pairs = [(agent, case) for agent in some or AGENTS]
    return pytest.mark.parametrize(("row", "case"), pairs, ids=[f"{agent.name}, {case}" for agent, _ in pairs])


def check_asked(run: Run, row: Agent, *statuses: int) -> None:
    """Check that an agent asked what it was meant to, got these statuses, and was denied nothing else."""
    found = {name: got for name, got in run.statuses.items() if GREETINGS.get(name) != got}
    assert found == {row.asks: {*statuses}}


@agents("stream")
def test_a_turn_of_an_agent(alone: Alone, made: Run, row: Agent) -> None:
    """The agent says what the model says to others, too."""
    assert (made.outcome.code, made.outcome.failed) == (0, False), made
    assert made.outcome.text == alone.said["/v1/messages"].text
    check_asked(made, row, 200)


@agents("tool")
def test_a_tool_loop_of_an_agent(made: Run, row: Agent, record_property: Callable[[str, object], None]) -> None:
    """The agent runs the command that a scripted worker wants run, which goes on when it sees that it was."""
    record_property("mark", "s")

    assert (made.outcome.code, made.outcome.text, made.outcome.failed) == (0, DONE, False), made
    assert (made.folder / "told").read_text() == "hi\n"
    check_asked(made, row, 200)


@agents("bad")
def test_a_model_that_is_not_there(made: Run, row: Agent) -> None:
    """The agent's user reads that, with the name."""
    assert (made.outcome.code, made.outcome.failed) == (1, True), made
    assert "nobody" in made.outcome.text
    check_asked(made, row, 404)


@agents("long")
def test_a_prompt_of_an_agent_that_is_too_long(made: Run, row: Agent) -> None:
    """The user reads that in the agent's own words, so the agent knows what it is."""
    words = {"Claude Code": "Prompt is too long", "Codex": "ran out of room in the model's context"}

    assert (made.outcome.code, made.outcome.failed) == (1, True), made
    assert words[row.name] in made.outcome.text
    check_asked(made, row, 400)


@agents("count", CLAUDE)
def test_how_full_the_context_is(everybody: Crowd, tmp_path: Path, row: Agent, case: str) -> None:
    """Claude Code counts dozens of prompts at the same time, and tells what it learnt."""
    everybody.revive()
    with tapped(everybody.served.url) as tap:
        outcome = row.run(tmp_path, tap.url, MODEL, "/context", SECONDS)

    assert (outcome.code, outcome.failed) == (0, False), outcome
    counted = tap.statuses()["POST /v1/messages/count_tokens?beta=true"]
    assert 200 in counted
    assert counted <= {200, 400}  # vLLM counts no more than it would read, and all tools at once are more
    assert len(tap.seen) > 10


@agents("leave")
def test_a_run_that_is_broken_off(everybody: Crowd, shared_pair: Pair, tmp_path: Path, row: Agent, case: str) -> None:
    """In mid-stream; the same."""
    everybody.revive()
    generated, left = "vllm:generation_tokens_total", everybody.left()
    before = shared_pair.generation.metric(generated)
    brief = evolve(row, brief=True)
    with brief.running(tmp_path, everybody.served.url, MODEL, STORY) as process:
        until(lambda: shared_pair.generation.metric(generated) > before + 4, SECONDS)
        os.killpg(process.pid, signal.SIGKILL)

    until(lambda: everybody.left() > left, IDLE_SECONDS)
    until(everybody.served.idle, IDLE_SECONDS)
    shared_pair.settle()


@agents("killed")
def test_a_worker_that_is_killed_under_an_agent(made: Run, row: Agent) -> None:
    """The run fails and says so; half an answer is never taken for one."""
    assert (made.outcome.code, made.outcome.failed) == (1, True), made
    assert made.statuses[row.asks] - {502, 503} == {200}  # Claude Code asks once more, and is told that nobody is there
    assert {*made.statuses} <= {row.asks, *GREETINGS}
