"""Real vLLM workers that the tests of a run share: they take minutes to start."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.agents import Agent
from tests.clients.rows import Row
from tests.clients.table import show
from tests.clients.world import legs, words
from tests.e2e.programs import stub
from tests.live.crowd import SCRIPTED, Crowd, Made, crowd
from tests.live.pair import IDLE_SECONDS, Expected, Front, Pair, front
from tests.live.subjects import Alone, ask_alone
from tests.live.vllm import VllmWorker
from tests.live.worker import started, until

WAY = "live"
LEGEND = """\
All clients at the same time, through the kernel to a pair of real vLLM workers, one of which is killed in the end.
  s  a scripted worker stands in: agents do not let one force a call, and a small model makes none that they understand
  -  the client has no such call: agents only stream, counting and betas are Anthropic's, LiteLLM makes streams itself
Agents send few instructions and no tools where the model has to read it all, and their usual requests elsewhere."""


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the workers' logs."""
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="session")
def alone(workshop: Path) -> Alone:
    """What one worker that does everything answers; it has ended before the pair starts."""
    worker = VllmWorker("aggregated", None, workshop)
    with started(worker):
        return ask_alone(worker)


@pytest.fixture(scope="session")
def expected(alone: Alone) -> dict[str, Expected]:
    """Its answer to each question."""
    return alone.texts


@pytest.fixture(scope="session")
def shared_pair(alone: Alone, workshop: Path) -> Iterator[Pair]:
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


@pytest.fixture(scope="session")
def gateway(shared_pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A kernel in front of the pair, and of another one of stubs that do what a prompt says."""
    shared_pair.revive()
    with (
        stub(*words("pair", SCRIPTED, "context")) as (_, context),
        stub(*words("pair", SCRIPTED, "generation")) as (_, generation),
    ):
        pool = f"{{model: {SCRIPTED}, {legs('pair', context, generation)}}}"
        with front(shared_pair, tmp_path_factory.mktemp("gateway"), "{}", pool) as served:
            until(lambda: len(served.kernel.logged("worker.up")) >= 4, IDLE_SECONDS)
            yield served


@pytest.fixture(scope="session")
def everybody(gateway: Front, shared_pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """All clients."""
    with crowd(gateway, shared_pair, tmp_path_factory.mktemp("crowd")) as made:
        yield made


@pytest.fixture
def made(everybody: Crowd, row: Row | Agent, case: str) -> Made:
    """What the client made of the case."""
    return everybody.of(row, case)


@pytest.fixture
def noted(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Keep for the table which client and case a test is about."""
    for name in ("row", "case"):
        told = request.getfixturevalue(name)
        record_property("client" if name == "row" else name, getattr(told, "name", told))
    record_property("way", WAY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each client made of each case."""
    show(terminalreporter, LEGEND, (WAY,), nothing="-")
