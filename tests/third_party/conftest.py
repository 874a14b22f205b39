"""Distributions of third parties, installed with pip into a folder of their own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.third_party.support import Site

HERE = Path(__file__).parent
DISTRIBUTIONS = ("tenant_gate", "broken_gate", "echo_engine")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed all of them, without a network."""
    folder, sources = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("sources")
    for name in DISTRIBUTIONS:
        shutil.copytree(HERE / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-index", "--no-deps", "--no-build-isolation", "--no-compile", "--target", str(folder)]
    done = subprocess.run(
        [*command, *(str(sources / name) for name in DISTRIBUTIONS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def site(installed: Path, tmp_path: Path) -> Site:
    """A fresh copy of what pip installed."""
    folder = tmp_path / "site"
    shutil.copytree(installed, folder)
    return Site(folder, tmp_path / "kernel.yaml")
