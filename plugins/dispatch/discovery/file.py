"""Workers that a file names, which is looked at again and again."""

import asyncio
import errno
import os
import stat
from pathlib import Path
from typing import Final

from attrs import field, frozen, validators

from kernel import ConfigError
from plugins.configuration import FileWatch, read_list
from plugins.dispatch.discovery.contract import Audience
from plugins.dispatch.worker_config import WorkerConfig, normal_workers

SETTLE_SECONDS: Final = 0.1
"""How long a change must stay as it is: half of a file may be a list too, of fewer workers."""

READ_BYTES: Final = 1024 * 1024 + 1
"""One more than a file may have: a larger one is read no further, and refused."""


@frozen
class FileDiscovery:
    """The workers are those of the YAML or JSON list in the file at `path`, seen from the working directory.

    Its items are what stands under `workers` elsewhere. It is looked at every `poll_seconds`. One that cannot be
    read or used, or that has no workers, changes nothing.
    """

    path: Path
    poll_seconds: float = field(default=1.0, validator=[validators.ge(0.01), validators.le(3600)])

    def read(self) -> bytes:
        """The content, as much of it as there may be and one byte more; raises `OSError`."""
        with open(self.path, "rb", opener=_open) as file:  # a path's own `open` has no opener
            return file.read(READ_BYTES)

    async def follow(self, audience: Audience, /) -> None:
        """Tell what the file says, and what is wrong with it."""
        loop = asyncio.get_running_loop()

        def complain(reason: str) -> None:  # called in the thread that reads
            loop.call_soon_threadsafe(audience.complain, (f"{self.path}: {reason}",))

        watch = FileWatch(self, complain)
        content = await asyncio.to_thread(watch.take)
        while True:
            if content is not None:
                try:
                    workers = await asyncio.to_thread(read_workers, content, str(self.path))
                except ConfigError as error:
                    audience.complain(error.problems)
                else:
                    audience.publish(workers)
            content = await watch.changed(self.poll_seconds, SETTLE_SECONDS)


def _open(path: str, flags: int) -> int:
    """Open a regular file; to open a pipe would wait for a writer, and nothing can end that."""
    found = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.EINVAL, "not a regular file")
    return found


def read_workers(content: bytes, name: str) -> tuple[WorkerConfig, ...]:
    """The workers that a file names.

    Raises:
        ConfigError: all that is wrong with it, each problem with its line.
    """
    seen: set[str] = set()

    def take(item: str | WorkerConfig) -> WorkerConfig:
        (worker,) = normal_workers((item,))
        if worker.url in seen:
            raise ValueError(f"the worker {worker.url} is named twice")
        seen.add(worker.url)
        return worker

    workers = read_list(content, name, str | WorkerConfig, take)
    if not workers:
        raise ConfigError(f"{name}: there must be at least one worker; to take all of them out, let them drain")
    return workers


DISCOVERY = FileDiscovery
