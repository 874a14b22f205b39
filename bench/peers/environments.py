"""The environments of the peers: a folder with pinned packages for each, made by `make bench-peers` and kept."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from attrs import frozen

from bench.cache import cache, locked
from bench.processes import BenchError

CONSTRAINTS: Final = Path(__file__).parent / "constraints.txt"
INSTALL_SECONDS: Final = 900.0


@frozen
class Environment:
    """Where one peer is installed, alone, because two of them bring a program of the same name."""

    package: str

    @property
    def folder(self) -> Path:
        """Where it is, made or not."""
        return peers_folder() / self.package

    @property
    def version(self) -> str:
        """The version that is pinned."""
        lines = CONSTRAINTS.read_text().splitlines()
        return next(line.partition("==")[2] for line in lines if line.startswith(f"{self.package}=="))

    def program(self, name: str) -> str:
        """The path of one of its programs.

        Raises:
            BenchError: it is not installed, or not with these versions.
        """
        if not self._is_complete():
            raise BenchError(f"{self.package} {self.version} is not installed: `make bench-peers` does it")
        return str(self.folder / "bin" / name)

    def install(self) -> None:
        """Install it, unless it is.

        Raises:
            BenchError: the package registry did not give it.
        """
        with locked(f"peers-{self.package}"):
            if not self._is_complete():
                shutil.rmtree(self.folder, ignore_errors=True)
                _run(sys.executable, "-m", "venv", str(self.folder))
                pip = (str(self.folder / "bin/pip"), "--disable-pip-version-check", "--no-input", "install", "--quiet")
                _run(*pip, "--constraint", str(CONSTRAINTS), self.package)
                self._mark.write_text(fingerprint())

    @property
    def _mark(self) -> Path:
        return self.folder / ".complete"

    def _is_complete(self) -> bool:
        return self._mark.is_file() and self._mark.read_text() == fingerprint()


def peers_folder() -> Path:
    """Where all peers are."""
    return cache() / "peers"


def fingerprint() -> str:
    """What says that an environment is still the right one."""
    return hashlib.sha256(f"{CONSTRAINTS.read_text()} {sys.version_info[:2]}".encode()).hexdigest()


def _run(*words: str) -> None:
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise BenchError(f"{' '.join(words[:3])} ended with {done.returncode}:\n{said[-2000:]}")
