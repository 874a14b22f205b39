"""What is left out on a machine without a C compiler; `.ci/run` sees to it that there is one."""

import os
import shlex
import shutil

_COMPILED = ("test_bench.py", "test_peer_workers.py", "test_peers.py", "test_programs.py", "test_stages.py")

_IS_THERE = shutil.which(shlex.split(os.environ.get("CC", "cc"))[0]) is not None

collect_ignore = [] if _IS_THERE else [*_COMPILED]


def pytest_report_header() -> list[str]:
    """Say so."""
    return [] if _IS_THERE else ["no C compiler: most tests of the benchmarks are left out"]
