"""The file of records: what is written, what is lost, and that no request ever fails or waits for it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from kernel import BytesReply
from plugins.request_timing.journal import QUEUE, Journal
from plugins.request_timing.plugin import RequestTiming
from tests.plugins.support import CHAT_STREAM, Worker, counting, parsed, serve, stream

pytestmark = pytest.mark.anyio

LOST = "kernel_performance_records_lost_total "


@asynccontextmanager
async def journal_in(folder: Path) -> AsyncIterator[Journal]:
    """A journal that runs, and has written all that it can when it ends."""
    journal = Journal(str(folder))
    await journal.start()
    try:
        yield journal
    finally:
        await journal.stop()


def lines_in(folder: Path) -> list[bytes]:
    """The lines of the one file in a folder."""
    (file,) = folder.iterdir()
    return file.read_bytes().splitlines(keepends=True)


def break_line(journal: Journal, text: bytes) -> None:
    """Leave a line without its end."""
    assert journal.path is not None
    with journal.path.open("ab") as file:
        file.write(text)


def put_folder_in_place_of(journal: Journal) -> None:
    """Make the file one that cannot be opened, whoever tries."""
    assert journal.path is not None
    journal.path.unlink()
    journal.path.mkdir()


async def test_each_record_is_a_line_of_compact_json(tmp_path: Path) -> None:
    """In their order, in a file whose name says what it is, who writes it and since when; folders are made."""
    folder = tmp_path / "not" / "there"
    async with journal_in(folder) as journal:
        for number in range(200):
            journal.add({"number": number, "text": "caf\u00e9"})
    lines = lines_in(folder)
    assert [orjson.loads(line)["number"] for line in lines] == list(range(200))
    assert lines[0] == '{"number":0,"text":"caf\u00e9"}\n'.encode()
    assert journal.path is not None
    assert re.fullmatch(r"perf_metrics-disagg-.+-\d+-\d{8}T\d{6}Z\.jsonl", journal.path.name)


async def test_more_than_the_queue_holds_is_lost_and_counted(tmp_path: Path) -> None:
    """The first loss is logged and then each thousandth; the others are written all the same."""
    with counting() as changes, capture_logs() as logs:
        async with journal_in(tmp_path) as journal:
            for number in range(QUEUE + 1001):
                journal.add({"number": number})
    assert len(lines_in(tmp_path)) == QUEUE
    assert changes == {f"{LOST}overflow": 1001}
    assert [line["lost"] for line in logs if line["event"] == "performance.records_lost"] == [1, 1000]


async def test_a_torn_line_gets_its_end(tmp_path: Path) -> None:
    """So that the records behind it can be read."""
    async with journal_in(tmp_path) as journal:
        break_line(journal, b'{"torn":')
        journal.add({"number": 1})
    assert lines_in(tmp_path) == [b'{"torn":\n', b'{"number":1}\n']


async def test_a_folder_that_cannot_be_written_switches_the_file_off(tmp_path: Path) -> None:
    """Requests are served, and it is logged once."""
    (tmp_path / "file").write_bytes(b"")
    plugin = RequestTiming(perf_metrics_output_dir=str(tmp_path / "file" / "below"))
    with counting() as changes, capture_logs() as logs:
        await plugin.start()
        for reply in (BytesReply(b"{}"), stream(CHAT_STREAM)):
            written = await serve(parsed(), plugin, Worker(reply))
            assert written.ended
        await plugin.stop()
    assert [line["event"] for line in logs] == ["performance.output_disabled"]
    assert not any(name.startswith(LOST) for name in changes)


async def test_a_file_that_fails_later_costs_records_only(tmp_path: Path) -> None:
    """What cannot be written, or cannot be JSON, is counted; later records are tried again."""
    with counting() as changes, capture_logs():
        async with journal_in(tmp_path) as journal:
            put_folder_in_place_of(journal)
            journal.add({"number": 1})
    assert changes == {f"{LOST}error": 1}
    with counting() as changes, capture_logs():
        async with journal_in(tmp_path / "other") as journal:
            journal.add({"number": 1 << 70})
    assert changes == {f"{LOST}error": 1}
    assert lines_in(tmp_path / "other") == []


async def test_nothing_is_taken_before_the_start_or_after_the_end(tmp_path: Path) -> None:
    """A plugin that is not started, or stopped, loses what it is given."""
    journal = Journal(str(tmp_path))
    journal.add({"number": 0})
    await journal.stop()
    await journal.start()
    await journal.stop()
    journal.add({"number": 1})
    await journal.stop()
    assert lines_in(tmp_path) == []


async def test_every_good_answer_is_a_record(tmp_path: Path) -> None:
    """Whole and streamed ones, of engines whose workers tell nothing too."""
    plugin = RequestTiming(perf_metrics_output_dir=str(tmp_path))
    await plugin.start()
    for reply in (BytesReply(b"{}"), stream(CHAT_STREAM)):
        written = await serve(parsed(), plugin, Worker(reply))
        assert b"perf_metrics" not in written.body
    await plugin.stop()
    records: list[dict[str, Any]] = [orjson.loads(line) for line in lines_in(tmp_path)]
    assert [record["status"] for record in records] == ["complete", "complete"]
    assert all(record["disagg_server_first_token_time"] is not None for record in records)


@pytest.mark.parametrize("folder", ["", "  "])
def test_a_folder_without_a_name_is_a_mistake(folder: str) -> None:
    """In the file, and not one that writes into the working directory."""
    with pytest.raises(ValueError, match="perf_metrics_output_dir names no folder"):
        RequestTiming(perf_metrics_output_dir=folder)


def test_equal_settings_are_equal() -> None:
    """So that a reload carries the file on; nothing of the state shows."""
    assert RequestTiming(perf_metrics_output_dir="a") == RequestTiming(perf_metrics_output_dir="a")
    assert "Journal" not in repr(RequestTiming(perf_metrics_output_dir="a"))
