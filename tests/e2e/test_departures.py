"""A client that leaves, wherever its request is: the log says 499, and nothing of it is held or runs anywhere."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.e2e.departures import WAITING_ROOM, Stage, stage
from tests.e2e.programs import until
from tests.kernel.support import Shelf

PLAIN = "x-early-start: off\r\n"


@pytest.fixture(scope="module", params=["vllm", "sglang", "trtllm"])
def staged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A kernel with a pair of each engine, for all tests here."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    (folder / "waiting_room.py").write_text(WAITING_ROOM)
    Shelf(folder).install("waiting-room", {"waiting_room": "waiting_room:PLUGIN"})
    with patch.dict(os.environ, {"PYTHONPATH": str(folder)}), stage(folder, request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def _forget(staged: Stage) -> Iterator[None]:
    """Each test finds workers that have seen nothing, and exactly one more request that was left."""
    for worker in staged.workers:
        worker.reset()
    before = staged.counted(499)
    yield
    assert staged.counted(499) == before + 1


def left(staged: Stage, name: str) -> None:
    """Check that a request was given up."""
    line = staged.settled(name)
    assert (line["status"], line["outcome"]) == (499, "client_gone")


def test_in_the_queue(staged: Stage) -> None:
    """A plugin lets it wait before dispatch: no worker ever hears of it."""
    with staged.client("queue", "x-wait: 1\r\n") as client:
        until(lambda: staged.kernel.metric('kernel_requests_in_flight{endpoint="chat_completions"}') == 1)
        client.leave()
    left(staged, "queue")
    assert [worker.worked() for worker in staged.workers] == [[], []]


@pytest.mark.parametrize("stream", [False, True])
def test_during_the_context_phase(staged: Stage, stream: bool) -> None:
    """The context worker's connection is closed; a generation worker that was asked beside it is told as well."""
    staged.context.fault("hang")
    with staged.client(f"context-{stream}", PLAIN, stream=stream) as client:
        until(lambda: staged.context.worked() == ["running"])
        client.leave()
    left(staged, f"context-{stream}")
    assert staged.context.worked() == ["aborted"]
    if staged.engine == "sglang":
        until(lambda: [worker.aborts() for worker in staged.workers] == [1, 1])
    else:
        assert staged.generation.worked() == []


def test_between_two_attempts(staged: Stage) -> None:
    """The kernel pauses before it asks the only generation worker again, and then does not."""
    staged.generation.fault("die_before_headers", times=-1)
    with staged.client("between", PLAIN) as client:
        until(lambda: "faulted" in staged.generation.worked())
        client.leave()
    left(staged, "between")
    assert {*staged.generation.worked()} == {"faulted"}  # twice over a connection that may have been closed before


def test_before_the_generation_worker_answers(staged: Stage) -> None:
    """Its connection is closed, though it has said nothing."""
    staged.generation.fault("hang")
    with staged.client("unanswered", PLAIN) as client:
        until(lambda: staged.generation.worked() == ["running"])
        client.leave()
    left(staged, "unanswered")
    assert staged.generation.worked() == ["aborted"]


def test_in_mid_stream(staged: Stage) -> None:
    """Generation stops."""
    with staged.client("stream", PLAIN, stream=True) as client:
        assert b"200 OK" in client.read(b"data: ")
        client.leave()
    left(staged, "stream")
    assert staged.generation.worked() == ["aborted"]
    if staged.engine == "sglang":
        until(lambda: staged.generation.aborts() == 1)


def test_in_the_silence_of_a_stream_that_began_early(staged: Stage) -> None:
    """The status was 200 and comments have come; what runs behind them is stopped like any other work."""
    staged.context.fault("hang")
    with staged.client("early", stream=True) as client:
        assert b"200 OK" in client.read(b": keep-alive\n\n")
        client.read(b": keep-alive\n\n")
        assert staged.context.worked() == ["running"]
        client.leave()
    left(staged, "early")
    assert staged.context.worked() == ["aborted"]
    if staged.engine == "sglang":
        until(lambda: [worker.aborts() for worker in staged.workers] == [1, 1])
