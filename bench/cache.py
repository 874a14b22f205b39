"""The folder of the user's cache in which environments of other programs are kept, and who may make one."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache() -> Path:
    """The folder of all engines and routers: `$ENGINES_HOME`, or `engines` in the user's cache."""
    if home := os.environ.get("ENGINES_HOME"):
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "engines"


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep other processes from making the same thing at the same time."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
