"""Real vLLM workers that the tests of a run share: they take minutes to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.pair import Expected, Front, Pair, ask_aggregated, front
from tests.live.vllm import VllmWorker
from tests.live.worker import started


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the workers' logs."""
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="session")
def expected(workshop: Path) -> dict[str, Expected]:
    """What one worker that does everything answers to each question; it has ended before the pair starts."""
    worker = VllmWorker("aggregated", None, workshop)
    with started(worker):
        return ask_aggregated(worker)


@pytest.fixture(scope="session")
def shared_pair(expected: dict[str, Expected], workshop: Path) -> Iterator[Pair]:
    """A context and a generation worker, some of which a test may have ended."""
    workers = VllmWorker("context", "context", workshop), VllmWorker("generation", "generation", workshop)
    with started(*workers):
        yield Pair(*workers)


@pytest.fixture
def pair(shared_pair: Pair) -> Iterator[Pair]:
    """The context and the generation worker, both of them well and idle; idle again when the test is over."""
    shared_pair.revive()
    yield shared_pair
    shared_pair.settle()


@pytest.fixture
def served(pair: Pair, tmp_path: Path) -> Iterator[Front]:
    """A kernel in front of the pair."""
    with front(pair, tmp_path) as kernel:
        yield kernel
