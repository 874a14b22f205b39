# ruff: noqa: ASYNC240 - the files are small and on this machine
"""What makes a running kernel read its file again, in one process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import define, field

from kernel import Runtime
from plugins.host import source as module
from plugins.host.instance import Record, State
from plugins.host.source import Reloader, Source
from tests.host.terminal import STANDARD
from tests.host.wire import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio

GOOD = "plugins: {terminal: {config: {limit: 5}}}\n"


@define(eq=False)
class Watched:
    """A reloader that looks at its file all the time, and how often it has."""

    path: Path
    runtime: Runtime
    reloader: Reloader
    looks: list[None] = field(factory=list)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():  # noqa: ASYNC110 - there is no event for what a test wants to see
                await asyncio.sleep(0.005)

    async def looked_again(self) -> None:
        """Wait until the file was looked at twice more, and so certainly once from now on."""
        count = len(self.looks) + 2
        await self.until(lambda: len(self.looks) >= count)

    def limit(self) -> int:
        """The limit that is in force."""
        plugin: Any = self.runtime.serving.plugins["terminal"]
        return int(plugin.limit)


@asynccontextmanager
async def watching(path: Path, monkeypatch: pytest.MonkeyPatch, *, watch: bool = True) -> AsyncIterator[Watched]:
    """A running reloader of the terminal plugin, which looks at its file if it shall `watch`."""
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.01)
    source = Source(path)
    runtime = Runtime(STANDARD, source.load)
    record = Record(State.of_this_process("127.0.0.1:1", path))
    record.open()
    watched = Watched(path, runtime, Reloader(source, runtime, record, source.load().settings()))
    read = Source.read

    def counted(self: Source) -> bytes:
        watched.looks.append(None)
        return read(self)

    monkeypatch.setattr(Source, "read", counted)
    await runtime.start()
    if watch:
        watched.reloader.watch()
    try:
        yield watched
    finally:
        watched.reloader.close()
        await runtime.stop()
        record.remove()


@pytest.fixture
def path(tmp_path: Path, terminal: ModuleType) -> Path:
    """A configuration file of the terminal plugin."""
    path = tmp_path / "kernel.yaml"
    path.write_text("")
    return path


async def test_change(path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[Any]) -> None:
    """New content is taken once; the same content, written again, is no change."""
    async with watching(path, monkeypatch) as watched:
        assert watched.limit() == 1000
        path.write_text(GOOD)
        await watched.until(lambda: watched.limit() == 5)
        await watched.looked_again()
        path.write_text(GOOD)
        await watched.looked_again()
        assert watched.reloader.record.state.reloads == 1
        assert [line["event"] for line in logged].count("chain.swapped") == 1


async def test_file_that_is_still_being_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content that differs from look to look is not taken, however good it is; the last one is."""
    async with watching(path, monkeypatch) as watched:
        read = Source.read

        def written_on(self: Source) -> bytes:
            path.write_text(f"{GOOD}# {len(watched.looks)}")
            return read(self)

        with monkeypatch.context() as patch:
            patch.setattr(Source, "read", written_on)
            await watched.looked_again()
            await watched.looked_again()
            assert watched.reloader.record.state.last_reload is None
        await watched.until(lambda: watched.limit() == 5)


@pytest.mark.parametrize(
    ("spoil", "event"),
    [
        (lambda path: path.unlink(), "configuration.unreadable"),
        (lambda path: (path.unlink(), path.mkdir()), "configuration.unreadable"),
        (lambda path: path.write_text("plugins: {terminal: {config: {limit: many}}}"), "chain.refused"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "chain.refused"),
        (lambda path: path.write_bytes(b"#" * 2_000_000), "chain.refused"),
        (lambda path: path.write_text("a: [" * 1000), "chain.refused"),
    ],
)
async def test_bad_content(
    path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[Any], spoil: Callable[[Path], object], event: str
) -> None:
    """A file that cannot be read or used changes nothing, is logged once, and hides no later good one."""
    path.write_text(GOOD)
    async with watching(path, monkeypatch) as watched:
        spoil(path)
        await watched.until(lambda: event in [line["event"] for line in logged])
        await watched.looked_again()
        await watched.looked_again()
        assert [line["event"] for line in logged].count(event) == 1
        assert watched.limit() == 5
        if path.is_dir():
            path.rmdir()
        path.write_text(GOOD.replace("5", "6"))
        await watched.until(lambda: watched.limit() == 6)
        assert watched.reloader.record.state.refused == ()


async def test_same_content_again(path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[Any]) -> None:
    """A file that was away for a moment and comes back as it was is no change."""
    async with watching(path, monkeypatch) as watched:
        path.unlink()
        await watched.looked_again()
        path.write_text("")
        await watched.looked_again()
        assert watched.reloader.record.state.last_reload is None


async def test_hangup_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every SIGHUP is answered, with the content of the file at that time, and found changed no second time."""
    async with watching(path, monkeypatch, watch=False) as watched:
        path.write_text(GOOD)
        watched.reloader.hang_up()
        await watched.until(lambda: watched.reloader.record.state.hangups == 1)
        assert watched.limit() == 5
        watched.reloader.watch()
        await watched.looked_again()
        assert watched.reloader.record.state.reloads == 1
        path.write_text("plugins: 5\n")
        watched.reloader.hang_up()
        await watched.until(lambda: watched.reloader.record.state.hangups == 2)
        state = watched.reloader.record.state
        assert (state.reloads, len(state.refused)) == (1, 1)


async def test_fault_in_a_reload(path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[Any]) -> None:
    """A fault of the kernel itself in a reload is told like a problem, and ends no watch."""
    async with watching(path, monkeypatch) as watched:

        async def broken() -> tuple[str, ...]:
            raise ZeroDivisionError("not meant")

        with monkeypatch.context() as patch:
            patch.setattr(watched.runtime, "reload", broken)
            watched.reloader.hang_up()
            await watched.until(lambda: watched.reloader.record.state.hangups == 1)
            assert watched.reloader.record.state.refused == ("ZeroDivisionError: not meant",)
        path.write_text(GOOD)
        watched.reloader.hang_up()
        await watched.until(lambda: watched.limit() == 5)
