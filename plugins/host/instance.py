"""The state files by which the commands find what runs on this machine: one for each process of an instance."""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import attrs
from attrs import define, field, frozen
from structlog.stdlib import get_logger

from plugins.host.failure import Failure

FOLDER: Final = "disagg-kernel"
EMBEDDED: Final = "demo"
"""Stands in a file's name for the configuration of an instance that has none."""

MAXIMUM_BYTES: Final = 1024 * 1024

log = get_logger()


@frozen(kw_only=True)
class State:
    """What a process says of itself.

    `mark` tells a process from a later one with the same id. `config` is an absolute path, None for the demo.
    `parent` is the supervisor's id in one of several processes. `hangups` counts the answered SIGHUPs and
    `reloads` those that were accepted, for whatever reason they were tried; `refused` are the last one's problems.
    """

    pid: int
    mark: str
    started: str
    listen: str
    config: str | None
    workers: int = 1
    parent: int | None = None
    hangups: int = 0
    reloads: int = 0
    refused: tuple[str, ...] = field(default=(), converter=tuple)
    last_reload: str | None = None

    @classmethod
    def of_this_process(cls, listen: str, config: Path | None, **more: Any) -> Self:
        """The state of this process at its start."""
        path = str(config.absolute()) if config is not None else None
        pid = os.getpid()
        return cls(pid=pid, mark=birth_mark(pid) or "", started=now(), listen=listen, config=path, **more)


@frozen
class Instance:
    """A running kernel: the process that takes signals, and those that serve; often they are the same."""

    state: State
    processes: tuple[State, ...]


@define(eq=False)
class Record:
    """This process's state file; a folder that cannot be used costs the commands their view, not the service."""

    state: State
    path: Path | None = None

    def open(self) -> None:
        """Write the first state."""
        what = f"{self.state.config or EMBEDDED} {self.state.listen}"
        name = hashlib.sha256(what.encode(errors="surrogateescape")).hexdigest()[:16]
        try:
            self.path = make_folder() / f"{name}.{self.state.pid}.json"
        except Failure as error:
            log.warning("instance.unrecorded", error=str(error))
        self.update()

    def update(self, **changes: Any) -> None:
        """Change the state and write it, in one step for whoever reads it."""
        self.state = attrs.evolve(self.state, **changes)
        if self.path is None:
            return
        fresh = self.path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(attrs.asdict(self.state)))
            fresh.replace(self.path)
        except OSError as error:
            log.warning("instance.unrecorded", error=str(error))

    def remove(self) -> None:
        """Remove the file."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)


def make_folder() -> Path:
    """The folder of state files, which only this user can read or change.

    Raises:
        Failure: it cannot be made, or something that is not ours stands in its place.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    owner = os.geteuid()
    shared = Path(tempfile.gettempdir()) / f"{FOLDER}-{owner}"
    folder = Path(runtime) / FOLDER if runtime and os.access(runtime, os.W_OK | os.X_OK) else shared
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise Failure(f"{folder}: {(error.strerror or str(error)).lower()}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
        raise Failure(f"{folder} is not a folder of this user: remove it")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


def find_instances(config: Path | None = None, *, any_config: bool = False) -> list[Instance]:
    """The instances that run with a configuration file, or with none; files of dead processes are removed."""
    states = list(_living(make_folder()))
    instances = []
    for state in states:
        if state.parent is None and (any_config or _is_of(state, config)):
            serving = tuple(other for other in states if other.parent == state.pid)
            instances.append(Instance(state, serving if state.workers > 1 else (state,)))
    return instances


def _living(folder: Path) -> Iterator[State]:
    for path in sorted(folder.glob("*.json")):
        try:
            state = State(**json.loads(path.read_bytes()[:MAXIMUM_BYTES]))
            if birth_mark(state.pid) == state.mark:
                yield state
            else:
                path.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError):
            continue  # gone meanwhile, or of another version


def _is_of(state: State, config: Path | None) -> bool:
    if state.config is None or config is None:
        return state.config is None and config is None
    with contextlib.suppress(OSError):
        if Path(state.config).samefile(config):
            return True
    return state.config == str(config.absolute())


def birth_mark(pid: int) -> str | None:
    """What tells a process from others that had its id: when it started; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _bare_mark(pid)
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _bare_mark(pid: int) -> str | None:
    """Without /proc the id alone has to do."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return ""
    return ""


def now() -> str:
    """The time for people."""
    return datetime.now(UTC).isoformat(timespec="seconds")
