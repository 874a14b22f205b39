"""The memory that several processes share: who may map it, and what it holds of loads."""

import os
import socket
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from plugins.board import BOARD, Board, BoardError, Slots, inherited, load_bytes, loads_in
from plugins.board.slots import SLOTS


@pytest.fixture
def board() -> Iterator[Board]:
    """Memory for two processes."""
    made = Board.create(2)
    yield made
    made.close()


def loads(board: Board, place: int) -> list[tuple[int, int, int]]:
    """What a row says, by another mapping than the writer's."""
    return [*loads_in(load_bytes(Board.adopt(board.descriptor).rows[place][0]))]


def test_loads_are_seen_by_others(board: Board) -> None:
    """What is put into a row is there in every mapping, and in no other row; idle workers are not told of."""
    slots = Slots(board.rows[1][0])
    first, second = slots.take(-7), slots.take(8)
    assert first is not None
    assert second is not None
    slots.put(first, 3, 300)
    assert loads(board, 1) == [(-7, 3, 300)]
    assert loads(board, 0) == []
    slots.put(second, 1, 1)
    slots.put(first, 0, 0)
    assert loads(board, 1) == [(8, 1, 1)]


def test_a_slot_that_is_given_back_is_taken_again(board: Board) -> None:
    """With no load on whoever has it next."""
    slots = Slots(board.rows[0][0])
    slot = slots.take(1)
    assert slot is not None
    slots.put(slot, 5, 5)
    slots.give_back(slot)
    assert slots.take(2) == slot
    assert loads(board, 0) == []


def test_workers_beyond_the_last_slot_have_none(board: Board) -> None:
    """And those that are in go on."""
    slots = Slots(board.rows[0][0])
    taken = [slots.take(key) for key in range(1, SLOTS + 1)]
    assert None not in taken
    assert slots.take(SLOTS + 1) is None
    slots.put(taken[-1] or 0, 1, 1)
    assert loads(board, 0) == [(SLOTS, 1, 1)]
    assert loads(board, 1) == []


@pytest.mark.parametrize("by", ["its supervisor", "the next process"])
def test_a_process_that_is_gone_has_nothing_on_workers(board: Board, by: str) -> None:
    """Whatever its row says, in the middle of a change as well."""
    slots = Slots(board.rows[0][0])
    for key in (1, 2, 3):
        slots.put(slots.take(key) or 0, key, key)
    if by == "its supervisor":
        board.wipe(0)
    else:
        Slots(board.rows[0][0])
    assert loads(board, 0) == []
    assert load_bytes(board.rows[0][0]) == b""


def test_a_row_of_garbage_is_read_and_wiped(board: Board) -> None:
    """Counts that cannot be are no reason to read or write anywhere else."""
    words = board.rows[0][0]
    for count in (-1, SLOTS + 1, 1 << 62):
        words[0] = count
        assert loads(board, 0) == []
        board.wipe(0)
        assert words[0] == 0
    assert loads(board, 1) == []


def test_the_memory_cannot_be_cut(board: Board) -> None:
    """Who reads behind the end of a file that was made shorter is killed: nobody can make it shorter."""
    for length in (0, 8, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(board.descriptor, length)


def test_what_is_no_board_is_refused(board: Board) -> None:
    """A descriptor of something else, of another length or layout, or of nothing."""
    with socket.socket() as other, pytest.raises(BoardError):
        Board.adopt(other.fileno())
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    for descriptor in (reader, -1, 1 << 40):
        with pytest.raises(BoardError):
            Board.adopt(descriptor)
    length = os.fstat(board.descriptor).st_size
    other_file = os.memfd_create("other")
    try:
        for size, message in ((0, "length"), (8, "length"), (length + 8, "length"), (length, "layout")):
            os.ftruncate(other_file, size)
            with pytest.raises(BoardError, match=message):
                Board.adopt(other_file)
    finally:
        os.close(other_file)


def test_a_process_finds_its_row(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what its supervisor says; without one it is alone."""
    find = inherited.__wrapped__
    monkeypatch.delenv(BOARD, raising=False)
    assert find() is None
    monkeypatch.setenv(BOARD, f"{board.descriptor}:1")
    found = find()
    assert found is not None
    assert found[1] == 1
    assert len(found[0].rows) == 2


@pytest.mark.parametrize("said", ["", "x", "1", "{}:2", "{}:-1", "{}:0:0", "9999:0", "0:0"])
def test_what_a_process_cannot_use_leaves_it_alone(board: Board, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves by what it knows itself, and the log says so."""
    monkeypatch.setenv(BOARD, said.format(board.descriptor))
    with capture_logs() as lines:
        assert inherited.__wrapped__() is None
    assert [line["event"] for line in lines] == ["board.unusable"]
