"""The two programs in C, compiled when they are first needed and whenever their sources are newer."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Final

from attrs import frozen

from bench.processes import BenchError

SOURCES: Final = Path(__file__).parent / "c"
BUILT: Final = Path(__file__).parent / "build"

FLAGS: Final = ("-O2", "-std=gnu11", "-Wall", "-Wextra")


@frozen
class Programs:
    """Where they are."""

    worker: Path
    load: Path


def build_programs(folder: Path = BUILT) -> Programs:
    """Compile what is missing or older than its sources, with `CC` or else `cc`.

    Raises:
        BenchError: there is no compiler, or it refuses.
    """
    folder.mkdir(exist_ok=True)
    return Programs(*(_build(name, folder) for name in ("worker", "load")))


def _build(name: str, folder: Path) -> Path:
    program = folder / name
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if program.exists() and program.stat().st_mtime > newest:
        return program
    fresh = folder / f"{name}.{os.getpid()}"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, *FLAGS, "-o", str(fresh), str(SOURCES / f"{name}.c")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        raise BenchError(
            f"no C compiler {compiler[0]!r}: install one (on Debian: gcc and libc6-dev), or name it with CC=..."
        ) from None
    if done.returncode:
        raise BenchError(f"{name}.c cannot be compiled: {done.stderr.strip()}")
    fresh.replace(program)
    return program
