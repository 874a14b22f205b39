"""The kernel, its workers and the clients, which the tests of a run share, and the table at its end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.client import Client, Library, started
from tests.clients.table import LEGEND, PROPERTIES, show
from tests.clients.world import WAYS, World, world

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these tests last, so that their programs do not run beside all the others."""
    items.sort(key=lambda item: HERE in item.path.parents)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The kernel and its workers."""
    with world(tmp_path_factory.mktemp("kernel")) as made:
        yield made


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Library], Client]]:
    """Libraries' programs, each started when it is first asked for."""
    running: dict[Library, Client] = {}
    with ExitStack() as stack:

        def client(library: Library) -> Client:
            if library not in running:
                running[library] = stack.enter_context(started(library, tmp_path_factory.mktemp("client")))
            return running[library]

        yield client


@pytest.fixture
def noted(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Keep for the table which client, case and way a test is about; the first is a row or its name."""
    told = request.getfixturevalue("row"), request.getfixturevalue("case"), request.getfixturevalue("way")
    for name, value in zip(PROPERTIES, told, strict=True):
        record_property(name, getattr(value, "name", value))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each client made of each case."""
    show(terminalreporter, LEGEND, WAYS)
