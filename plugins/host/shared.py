"""What the processes of a supervisor have in common: a folder of metrics, memory, and how they hash strings."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from secrets import randbelow
from typing import Final

from attrs import frozen
from prometheus_client.multiprocess import mark_process_dead
from structlog.stdlib import get_logger

from plugins.board import BOARD, Board
from plugins.tallies import MULTIPROCESS

PROCESS_NUMBER: Final = "TRTLLM_DISAGG_WORKER_PROCESS_ID"
"""Tells a process its number among those of this machine, which is part of the handoff ids that it makes."""

HASH_SEED: Final = "PYTHONHASHSEED"
"""With the same one, processes can tell each other of conversations and prompts by hashes that are made anyway."""

_SEEDS: Final = (1 << 32) - 1

log = get_logger()


@frozen
class Shared:
    """Lasts as long as the supervisor. `board` is None where there is no such memory."""

    folder: str
    board: Board | None
    hash_seed: str

    @property
    def descriptors(self) -> Sequence[int]:
        """What each process is to be started with."""
        return () if self.board is None else (self.board.descriptor,)

    def environment(self, place: int) -> dict[str, str]:
        """That of the process at a place."""
        own = {MULTIPROCESS: self.folder, PROCESS_NUMBER: str(place), HASH_SEED: self.hash_seed}
        if self.board is not None:
            own[BOARD] = f"{self.board.descriptor}:{place}"
        return {**os.environ, **own}

    def forget(self, place: int, pid: int) -> None:
        """Take note that the process at a place has ended, however it did."""
        mark_process_dead(pid, self.folder)  # type: ignore[no-untyped-call]
        if self.board is not None:
            self.board.wipe(place)


@contextmanager
def sharing(count: int) -> Iterator[Shared]:
    """What so many processes share, for the length of a `with` block."""
    folder = tempfile.mkdtemp(prefix="disagg-kernel-metrics-")
    board = _make_board(count)
    given = os.environ.get(HASH_SEED, "")
    try:
        yield Shared(folder, board, given if given.isdecimal() else str(1 + randbelow(_SEEDS)))
    finally:
        if board is not None:
            board.close()
        shutil.rmtree(folder, ignore_errors=True)


def _make_board(count: int) -> Board | None:
    try:
        return Board.create(count)
    except OSError as error:  # each process then goes by what it knows itself
        log.warning("board.unmade", error=str(error))
        return None
