"""The ring of choices: one writes, others read when they like, and nobody waits."""

import random
import subprocess
import sys
from array import array
from collections.abc import Iterator

import pytest

from plugins.board import Board, Reel, Ring
from plugins.board.ring import NUMBERS, RING_WORDS, SPACE


def memory() -> memoryview:
    """An empty ring."""
    return memoryview(array("q", bytes(8 * RING_WORDS)))


def numbers_read(reel: Reel) -> list[int]:
    """The first number of each record that is new."""
    return [record.numbers[0] for record in reel.read()]


def test_records_come_as_they_were_written() -> None:
    """In order and once, with their times, whatever 64 bits their numbers are."""
    ring, reel = Ring(words := memory()), Reel(words)
    since = [ring.append(1, -5, (7, -(1 << 63), (1 << 63) - 1)), ring.append(255, 6, [])]
    read = [*reel.read()]
    assert [(one.kind, one.key, [*one.numbers]) for one in read] == [
        (1, -5, [7, -(1 << 63), (1 << 63) - 1]),
        (255, 6, []),
    ]
    assert [one.since for one in read] == sorted(since)
    assert not reel.behind
    assert [*reel.read()] == []


def test_who_reads_in_time_loses_nothing() -> None:
    """Over many turns of the ring, whatever the records' lengths and whenever they are read."""
    ring, reel, chance = Ring(words := memory()), Reel(words), random.Random(3)
    written, read = 0, list[int]()
    while ring.words[1] < 5 * SPACE:
        for _ in range(chance.randrange(40)):
            ring.append(0, 1, range(written, written + chance.choice((1, 2, 50, 1024))))
            written += 1
        read += numbers_read(reel)
    assert read == [*range(written)]


def test_who_reads_late_loses_the_oldest() -> None:
    """What is left begins with a whole record; so it does for one who begins to read now."""
    ring, reel, chance = Ring(words := memory()), Reel(words), random.Random(4)
    for round_ in range(5):
        for number in range(3000):
            ring.append(0, 1, [round_ * 3000 + number] * chance.choice((1, 30, 200)))
        late, new = numbers_read(reel), numbers_read(Reel(words))
        assert late == new == [*range(late[0], (round_ + 1) * 3000)]
        assert len(late) > 200


def test_what_is_written_over_while_it_is_read_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record that is handed on is one that was written."""
    ring, reel, chance = Ring(words := memory()), Reel(words), random.Random(5)
    copy = Reel._copy

    def slow(self: Reel, start: int, head: int) -> list[int]:
        half = (start + head) // 2
        first = copy(self, start, half)
        for _ in range(chance.randrange(400)):
            write()
        return first + copy(self, half, head)

    def write() -> None:
        number = chance.getrandbits(40)
        ring.append(0, number, [number] * chance.choice((1, 7, 200)))

    monkeypatch.setattr(Reel, "_copy", slow)
    whole = 0
    for _ in range(60):
        for _ in range(1500):
            write()
        for record in reel.read():
            assert {*record.numbers} == {record.key}
            whole += 1
    assert whole > 1000


def test_a_record_is_bounded() -> None:
    """No number of numbers is more than the ring can hold."""
    ring, reel = Ring(words := memory()), Reel(words)
    ring.append(0, 1, range(10 * SPACE))
    (record,) = reel.read()
    assert [*record.numbers] == [*range(NUMBERS)]


def test_garbage_is_read_to_its_end() -> None:
    """Whatever the memory holds, a reader ends, and a writer can go on."""
    chance = random.Random(6)
    for _ in range(60):
        words = memory()
        for place in (*range(2, 60), *(chance.randrange(2, RING_WORDS) for _ in range(200))):
            words[place] = chance.choice((0, -1, 1 << 40, chance.getrandbits(63), chance.getrandbits(10)))
        words[0] = chance.choice((0, -5, 50, SPACE, 1 << 62))
        words[1] = chance.choice((0, -5, 70, SPACE, SPACE + 9, 1 << 62))
        reel = Reel(words)
        assert len([*reel.read()]) <= SPACE
        ring = Ring(words)
        for number in range(3):
            ring.append(1, 2, (number,))
        read = [record.numbers[0] for record in reel.read() if record.kind == 1]
        assert read == [0, 1, 2][3 - len(read) :]
        assert len([*Reel(words).read()]) <= SPACE


WRITER = """
import sys
from plugins.board import Board, Ring
ring = Ring(Board.adopt(int(sys.argv[1])).rows[0][1])
number = 0
while True:
    number += 1
    ring.append(1, number, [number] * (1 + number % 300))
"""


@pytest.fixture
def board() -> Iterator[Board]:
    """Memory for one process."""
    made = Board.create(1)
    yield made
    made.close()


def test_a_writer_that_is_killed_leaves_whole_records(board: Board) -> None:
    """In the middle of whatever it did; the next one goes on behind them."""
    words = board.rows[0][1]
    reel, read = Reel(words), 0
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(board.descriptor)], pass_fds=[board.descriptor])
    try:
        while read < 5_000:
            assert process.poll() is None
            for record in reel.read():
                assert {*record.numbers} == {record.key}
                read += 1
    finally:
        process.kill()
        process.wait()
    left = [*Reel(words).read()]
    assert [record.key for record in left] == [*range(left[0].key, left[-1].key + 1)]
    Ring(words).append(1, -1, (-1,))
    assert [*Reel(words).read()][-1].key == -1
