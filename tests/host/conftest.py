"""Fixtures of the host's tests: the terminal plugin on the import path, and a place of their own for state files."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.host.distribution import THIRD_PARTY
from tests.host.process import FakeWorker, config_text, fake_worker
from tests.host.support import Served, serving
from tests.host.terminal import PLUGIN, install


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where instances of this test leave their state files."""
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the terminal plugin, installed for this test."""
    folder = tmp_path / "site"
    install(folder, "terminal", PLUGIN)
    monkeypatch.syspath_prepend(str(folder))
    import terminal_plugin  # type: ignore[import-not-found]

    yield terminal_plugin
    sys.modules.pop("terminal_plugin", None)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third party's plugin, installed for this test."""
    install(tmp_path / "site", "gate", THIRD_PARTY)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "gate_plugin", raising=False)


@pytest.fixture(scope="module")
def worker() -> Iterator[FakeWorker]:
    """A worker for all tests of a file."""
    with fake_worker() as started:
        yield started


@pytest.fixture
def config(tmp_path: Path, worker: FakeWorker) -> Path:
    """A configuration file with one model on that worker."""
    path = tmp_path / "kernel.yaml"
    path.write_text(config_text(worker))
    return path


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    """Each of the event loops that may run."""
    return str(request.param)


@pytest.fixture
def served(loop: str, terminal: ModuleType) -> Iterator[Served]:
    """A server on that loop."""
    with serving(loop=loop) as server:
        yield server
