"""`kernel run --workers 2`: what one process has on workers and chose, the other one goes by."""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.host.process import FakeWorker, Kernel, alive, fake_worker, running
from tests.host.wire import until

POOL = """
        - model: {model}
          workers: {urls}
          policy: {policy}
"""
LONG = "what was said before " * 100


@pytest.fixture
def workers() -> Iterator[list[FakeWorker]]:
    """Workers that nobody knows of yet."""
    with ExitStack() as stack:
        yield [stack.enter_context(fake_worker()) for _ in range(8)]


def configure(path: Path, workers: Sequence[FakeWorker], policies: Sequence[tuple[str, int]]) -> Path:
    """Write a configuration in which each policy is a model's, with so many of the workers."""
    urls, pools = [worker.url for worker in workers], list[str]()
    for policy, count in policies:
        pools.append(POOL.format(model=policy, policy=policy, urls=urls[:count]))
        del urls[:count]
    head = "listen: 127.0.0.1:0\ngrace_seconds: 0.3\nplugins:\n  dispatch:\n    config:\n      pools:"
    path.write_text(head + "".join(pools))
    return path


@contextmanager
def only(kernel: Kernel, pid: int) -> Iterator[None]:
    """Let none but one process serve."""
    others = [state.pid for state in kernel.serving() if state.pid != pid]
    for other in others:
        os.kill(other, signal.SIGSTOP)
    try:
        yield
    finally:
        for other in others:
            with suppress(ProcessLookupError):
                os.kill(other, signal.SIGCONT)


def who_answers(kernel: Kernel, workers: Sequence[FakeWorker], body: dict[str, Any]) -> int:
    """The worker that a request reaches."""
    before = [worker.asked for worker in workers]
    assert kernel.ask(body=body).status == 200
    (found,) = [place for place, worker in enumerate(workers) if worker.asked > before[place]]
    return found


def say(model: str, *contents: str, **fields: Any) -> dict[str, Any]:
    """A chat."""
    return {"model": model, "messages": [{"role": "user", "content": content} for content in contents], **fields}


def test_processes_go_by_what_the_others_do(tmp_path: Path, workers: list[FakeWorker]) -> None:
    """A worker that is busy for one is passed over by the other, and later turns reach the worker of the first one.

    When a process is killed, what it had keeps nobody busy, and the one that takes its place knows what was chosen.
    """
    config = configure(tmp_path / "kernel.yaml", workers, [("least_loaded", 2), ("conversation", 3), ("prefix", 3)])
    with running(config, "--workers", "2") as kernel:
        first, second = [state.pid for state in kernel.serving()]
        homes = {}
        with only(kernel, first):
            stream = kernel.open_stream("least_loaded")
            homes.update(begin(kernel, workers, range(4)))
        (busy,) = [place for place in (0, 1) if workers[place].asked]
        with only(kernel, second):
            body = say("least_loaded", "hi")
            until(lambda: [who_answers(kernel, workers[:2], body) for _ in range(4)] == [1 - busy] * 4)
            assert go_on(kernel, workers, range(4)) == homes
            homes.update(begin(kernel, workers, range(4, 8)))
        with only(kernel, first):
            assert go_on(kernel, workers, range(8)) == homes
        assert {*homes.values()} == {*range(2, 8)}
        os.kill(first, signal.SIGKILL)
        until(lambda: alive([first]) == [])
        with only(kernel, successor(kernel, first, second)):
            until(lambda: kernel.ask("/health", method="GET").status == 200)
            assert go_on(kernel, workers, reversed(range(8))) == homes
        with only(kernel, second):
            until(lambda: {who_answers(kernel, workers[:2], body) for _ in range(2)} == {0, 1})
        stream.connection.close()


def begin(kernel: Kernel, workers: list[FakeWorker], numbers: Iterable[int]) -> dict[tuple[str, int], int]:
    """The workers of the first turns of some conversations, by name and by prompt."""
    return turns(kernel, workers, numbers)


def go_on(kernel: Kernel, workers: list[FakeWorker], numbers: Iterable[int]) -> dict[tuple[str, int], int]:
    """Those of later turns."""
    return turns(kernel, workers, numbers, "and then?", "so it is")


def turns(kernel: Kernel, workers: list[FakeWorker], numbers: Iterable[int], *more: str) -> dict[tuple[str, int], int]:
    """The worker of a turn of each conversation."""
    return {
        (model, number): who_answers(kernel, workers, say(model, f"{number} {LONG}", *more, **fields))
        for number in numbers
        for model, fields in (("conversation", {"prompt_cache_key": f"c{number}"}), ("prefix", {}))
    }


def successor(kernel: Kernel, dead: int, other: int) -> int:
    """The process that has taken the place of one that is dead."""
    return until(lambda: next((state.pid for state in kernel.serving() if state.pid not in (dead, other)), None))
