"""Watches one file for other content, however it is replaced: written, renamed, or linked anew."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from attrs import define, field

FRESH_SECONDS: Final = 2.0
"""How long after a file was written its times say nothing: a second write may have the same ones."""

Stamp: TypeAlias = tuple[int, ...]


class Readable(Protocol):
    """A file, or what stands in for one and has no path."""

    @property
    def path(self) -> Path | None:
        """Where the file is."""
        ...

    def read(self) -> bytes:
        """The content, or as much of it as matters; raises `OSError`."""
        ...


@define(eq=False)
class FileWatch:
    """Knows the `content` of a file as it was last taken; `unreadable` hears each reason once.

    A file whose times and size are as before is not read again.
    """

    file: Readable
    unreadable: Callable[[str], None]
    content: bytes | None = field(default=None, init=False)
    _seen: bytes | None = field(default=None, init=False)
    _stamp: Stamp | None = field(default=None, init=False)
    _complaint: str | None = field(default=None, init=False)

    def look(self) -> bytes | None:
        """The file's content now, None while it cannot be read."""
        stamp = _stamp_of(self.file.path)
        if stamp is not None and stamp == self._stamp:
            return self._seen
        try:
            content = self.file.read()
        except OSError as error:
            complaint = (error.strerror or str(error)).lower()
            if complaint != self._complaint:
                self._complaint = complaint
                self.unreadable(complaint)
            self._stamp = None
            return None
        self._complaint = None
        self._stamp, self._seen = stamp, content
        return content

    def take(self) -> bytes | None:
        """Look, and take what there is for known."""
        content = self.look()
        if content is not None:
            self.content = content
        return content

    async def changed(self, poll_seconds: float, settle_seconds: float) -> bytes:
        """Wait until the file has other content than what is known, and has kept it for `settle_seconds`."""
        while True:
            await asyncio.sleep(poll_seconds)
            content = await asyncio.to_thread(self.look)
            if content is None or content == self.content:
                continue
            await asyncio.sleep(settle_seconds)
            if content == await asyncio.to_thread(self.look):
                self.content = content
                return content


def _stamp_of(path: Path | None) -> Stamp | None:
    """What tells one state of a file from another one; None if it is gone, or too fresh to tell."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    if time.time() - max(found.st_mtime, found.st_ctime) < FRESH_SECONDS:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
