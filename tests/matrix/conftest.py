"""What the tests of the fault matrix share."""

import gc
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.matrix.setups import ADMIN_KEY
from tests.matrix.table import CELLS, LEGEND, Cell, lines, write_markdown


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The event loop that the kernel serves on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[None]:
    """Look once for what is installed, which takes as long as a cell and is the same for all."""
    with patch("kernel.discovery.entry_points", cache(entry_points)):
        yield


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADMIN_KEY, "secret")


@pytest.fixture(scope="module", autouse=True)
def _collector() -> Iterator[None]:
    """Leave the garbage collector as it was: each server puts what there is at its start out of its way."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.fixture
def cells(request: pytest.FixtureRequest) -> list[Cell]:
    """The cells that were run."""
    return request.config.stash.setdefault(CELLS, [])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where this folder is named on the command line."""
    parser.addoption("--matrix-table", type=Path, metavar="FILE", help="write what was seen of every cell as Markdown")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, and write it if somebody asked for that."""
    found: list[Cell] = config.stash.get(CELLS, [])
    path = config.getoption("matrix_table", None)
    if path is not None:
        write_markdown(path, found)
    if found:
        terminalreporter.section(f"fault matrix, {len(found)} cells")
        for line in (*LEGEND, "", *lines(found)):
            terminalreporter.write_line(line)
