"""Asks a running instance for a reload and waits for its answer."""

import fcntl
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from plugins.host.failure import Failure
from plugins.host.instance import EMBEDDED, Instance, find_instances, make_folder

ANSWER_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.05


def find_one(config: Path | None) -> Instance:
    """The instance that runs with `config`, or the only one when there is no `config`.

    Raises:
        Failure: there is none, or there are several.
    """
    found = find_instances(config, any_config=config is None)
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(f"no instance runs with {config}" if config is not None else "no instance runs")
    lines = [f"pid {each.state.pid} on {each.state.listen} with {each.state.config or EMBEDDED}" for each in found]
    hint = "name the file of one:" if config is None else "send SIGHUP to one:"
    raise Failure([f"several instances run, {hint}", *lines])


def reload(config: Path | None) -> tuple[Instance, tuple[str, ...]]:
    """Have an instance reload; returns it with the problems for which it refused.

    Raises:
        Failure: no such instance, or no answer in time.
    """
    with _turn():
        asked = find_one(config)
        before = {state.pid: state.hangups for state in asked.processes}
        try:
            os.kill(asked.state.pid, signal.SIGHUP)
        except OSError as error:
            raise Failure(f"cannot signal pid {asked.state.pid}: {error.strerror}") from None
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            current = _again(asked)
            # a process that was started meanwhile has read the new file
            if current.processes and all(state.hangups > before.get(state.pid, -1) for state in current.processes):
                problems = (problem for state in current.processes for problem in state.refused)
                return current, tuple(dict.fromkeys(problems))
    raise Failure(f"pid {asked.state.pid} did not answer within {ANSWER_SECONDS:g} s")


def _again(asked: Instance) -> Instance:
    living: Iterable[Instance] = find_instances(any_config=True)
    for each in living:
        if (each.state.pid, each.state.mark) == (asked.state.pid, asked.state.mark):
            return each
    raise Failure(f"pid {asked.state.pid} ended meanwhile")


@contextmanager
def _turn() -> Iterator[None]:
    """Let one command at a time ask, so that each gets the answer to its own question."""
    descriptor = os.open(make_folder() / "reload.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
