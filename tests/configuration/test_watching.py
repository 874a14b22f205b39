"""When a file counts as changed, and how often it is read for that."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from attrs import define, field

from plugins.configuration import FileWatch

pytestmark = pytest.mark.anyio

OLD = 1_000_000_000
"""A time at which a file was written so long ago that its times can be relied on."""


@define(eq=False)
class Reader:
    """Reads a file, and counts how often."""

    path: Path
    reads: int = 0
    heard: list[str] = field(factory=list)
    _awaited: dict[int, threading.Event] = field(factory=dict)

    def read(self) -> bytes:
        """The content."""
        self.reads += 1
        if self.reads in self._awaited:
            self._awaited[self.reads].set()
        return self.path.read_bytes()

    async def has_read(self, times: int) -> None:
        """Return when it has been read so often; it has not been yet."""
        event = self._awaited.setdefault(times, threading.Event())
        assert await asyncio.to_thread(event.wait, 10)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Of a file that is not there yet."""
    return Reader(tmp_path / "file")


def watch_of(reader: Reader) -> FileWatch:
    """A watch that knows what there is."""
    watch = FileWatch(reader, reader.heard.append)
    watch.take()
    return watch


async def changed(watch: FileWatch) -> bytes:
    """The next content."""
    async with asyncio.timeout(10):
        return await watch.changed(0.001, 0.001)


def swap(path: Path, content: bytes) -> None:
    """Replace a file by renaming another one."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(path)


async def test_a_file_may_be_written_renamed_or_linked_anew(reader: Reader, tmp_path: Path) -> None:
    """As editors, deployment tools and Kubernetes do it."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(name.encode())
    (tmp_path / "data").symlink_to("one")
    reader.path.symlink_to("data/file")
    watch = watch_of(reader)
    assert watch.content == b"one"
    (tmp_path / "fresh").symlink_to("two")
    (tmp_path / "fresh").replace(tmp_path / "data")
    assert await changed(watch) == b"two"
    swap(reader.path, b"three")
    assert await changed(watch) == b"three"
    reader.path.write_bytes(b"four")
    assert await changed(watch) == b"four"


async def test_what_is_still_being_written_is_not_taken(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a file may be a good one."""
    read = Reader.read

    def written_on(self: Reader) -> bytes:
        if self.reads < 20:
            self.path.write_bytes(b"- a\n" * self.reads)
        return read(self)

    reader.path.write_bytes(b"")
    watch = watch_of(reader)
    monkeypatch.setattr(Reader, "read", written_on)
    assert await changed(watch) == b"- a\n" * 19


async def test_a_file_of_another_time_with_the_same_content_has_not_changed(reader: Reader) -> None:
    """Only its content counts."""
    reader.path.write_bytes(b"one")
    watch = watch_of(reader)
    swap(reader.path, b"one")
    waiting = asyncio.create_task(changed(watch))
    await reader.has_read(4)
    swap(reader.path, b"two")
    assert await waiting == b"two"


def test_a_file_that_was_not_touched_is_not_read_again(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it was written so lately that a second write could have the same time."""
    reader.path.write_bytes(b"one")
    watch = watch_of(reader)
    watch.look()
    assert reader.reads == 2
    monkeypatch.setattr("plugins.configuration.watching.FRESH_SECONDS", -1.0)
    for _ in range(5):
        assert watch.look() == b"one"
    assert reader.reads == 3
    os.utime(reader.path, (OLD, OLD))
    assert (watch.look(), reader.reads) == (b"one", 4)


def test_a_file_that_cannot_be_read_is_told_of_once(reader: Reader) -> None:
    """For each reason; what was known stays known."""
    reader.path.write_bytes(b"one")
    watch = watch_of(reader)
    reader.path.unlink()
    assert [watch.take(), watch.take()] == [None, None]
    reader.path.mkdir()
    assert [watch.take(), watch.take()] == [None, None]
    reader.path.rmdir()
    reader.path.write_bytes(b"one")
    assert watch.take() == b"one"
    reader.path.unlink()
    assert watch.look() is None
    assert reader.heard == ["no such file or directory", "is a directory", "no such file or directory"]
    assert watch.content == b"one"
