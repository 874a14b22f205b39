"""What the process keeps of its memory between requests."""

import os
import subprocess
import sys
from typing import Final

import pytest

PROGRAM: Final = """
import resource
import sys
from plugins.host.memory import settle

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
    for _ in range(50):
        blocks = [b"x" * size for size in (60_000, 100_000) for _ in range(8)]
        del blocks

if sys.argv[1:] == ["settled"]:
    settle()
use()
before = faults()
use()
print(faults() - before)
"""


def _faults(*words: str, **environment: str) -> int:
    """The page faults of fifty long prompts, after as many."""
    command = [sys.executable, "-c", PROGRAM, *words]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


@pytest.mark.skipif(
    not hasattr(os, "confstr") or "glibc" not in str(os.confstr("CS_GNU_LIBC_VERSION")), reason="glibc's"
)
def test_pages_are_kept() -> None:
    """Memory that was used before is used again without a page fault, which it is not by default."""
    assert _faults("settled") < 200 < _faults()


def test_the_environment_decides() -> None:
    """Whoever has set up the allocator is not overruled."""
    trim = {"MALLOC_TRIM_THRESHOLD_": "131072"}
    assert _faults("settled", **trim) > 200
