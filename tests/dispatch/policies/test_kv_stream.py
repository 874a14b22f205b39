"""A stream notices what it missed: it has that replayed, or forgets what it cannot know."""

from collections.abc import AsyncGenerator
from typing import Any

import ormsgpack
import pytest
from attrs import define, field

from plugins.dispatch.policies.kv_index import Holding, KvIndex
from plugins.dispatch.policies.kv_stream import KvStream
from plugins.dispatch.policies.kv_wire import Ledger
from tests.dispatch.policies.test_kv_wire import stored

pytestmark = pytest.mark.anyio


def payload(number: int, time: float | None = None) -> bytes:
    """A message that stores one block, named like the message."""
    return ormsgpack.packb([float(number) if time is None else time, [stored([number], [number] * 4, 4)], 0])


def frames(number: int, content: bytes | None = None) -> list[bytes]:
    """The same as it comes in."""
    return [b"topic", number.to_bytes(8, signed=True), payload(number) if content is None else content]


@define(eq=False)
class Worker:
    """What a worker still has, and what it was asked for."""

    kept: dict[int, bytes] = field(factory=dict)
    asked: list[int] = field(factory=list)
    error: Exception | None = None

    async def replay(self, start: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """Give what is kept from a number on."""
        self.asked.append(start)
        if self.error is not None:
            raise self.error
        for number, content in self.kept.items():
            if number >= start:
                yield number, content


def stream(worker: Worker | None = None) -> KvStream:
    """A stream that has heard nothing."""
    return KvStream("http://w", Ledger(Holding(KvIndex(), 0, 1000)), None if worker is None else worker.replay)


def names(heard: KvStream) -> list[Any]:
    """The blocks that are known."""
    return sorted(name for blocks in heard.ledger.holding._tiers.values() for name in blocks)


async def test_messages_in_order_are_entered() -> None:
    """Nothing is asked for."""
    worker = Worker()
    heard = stream(worker)
    for number in range(3):
        await heard.take(frames(number))
    assert (names(heard), worker.asked, heard.gaps, heard.losses) == ([0, 1, 2], [], 0, 0)


async def test_what_was_sent_before_is_replayed() -> None:
    """And the live messages that were in the replay already are not entered twice."""
    worker = Worker({number: payload(number) for number in range(4)})
    heard = stream(worker)
    await heard.begin()
    for number in (2, 3, 4):
        await heard.take(frames(number))
    assert (names(heard), worker.asked, heard.losses) == ([0, 1, 2, 3, 4], [0], 0)


async def test_who_joins_late_begins_with_what_comes() -> None:
    """Without a replay there is no more to know, and nothing to forget; with one, as much as is kept."""
    heard = stream()
    await heard.take(frames(7))
    assert (names(heard), heard.losses) == ([7], 0)
    heard = stream(Worker({number: payload(number) for number in (5, 6)}))
    await heard.begin()
    await heard.take(frames(7))
    assert (names(heard), heard.losses) == ([5, 6, 7], 0)


async def test_a_gap_is_closed_by_a_replay() -> None:
    """From the first number that is missing; nothing is lost."""
    worker = Worker({number: payload(number) for number in range(6)})
    heard = stream(worker)
    for number in (0, 1, 4, 5):
        await heard.take(frames(number))
    assert (names(heard), worker.asked, heard.gaps, heard.losses) == ([0, 1, 2, 3, 4, 5], [2], 1, 0)


@pytest.mark.parametrize("replays", [False, True])
async def test_a_gap_that_cannot_be_closed_makes_all_be_forgotten(replays: bool) -> None:
    """Removals may have been among what is lost; what comes after counts."""
    worker = Worker(error=TimeoutError("too slow"))
    heard = stream(worker if replays else None)
    for number in (0, 1, 4, 5):
        await heard.take(frames(number))
    assert (names(heard), heard.losses, worker.asked) == ([4, 5], 1, [2] if replays else [])


async def test_a_replay_that_begins_too_late_makes_what_was_before_be_forgotten() -> None:
    """The worker keeps only so many messages."""
    heard = stream(Worker({number: payload(number) for number in (3, 4, 5)}))
    for number in (0, 1, 6):
        await heard.take(frames(number))
    assert (names(heard), heard.losses) == ([3, 4, 5, 6], 1)


async def test_a_replay_with_a_hole_or_an_early_end_is_a_loss() -> None:
    """What is entered is what came without a gap to the last message."""
    heard = stream(Worker({2: payload(2), 4: payload(4)}))
    for number in (0, 1, 5):
        await heard.take(frames(number))
    assert (names(heard), heard.losses) == ([4, 5], 1)
    heard = stream(Worker({2: payload(2)}))
    for number in (0, 1, 5):
        await heard.take(frames(number))
    assert (names(heard), heard.losses) == ([5], 1)


async def test_repetitions_are_not_entered() -> None:
    """A number of the past that is no newer."""
    heard = stream()
    for number in (0, 1, 2, 1, 0, 2):
        await heard.take(frames(number))
    await heard.take(frames(1, ormsgpack.packb([1.0, [{"type": "AllBlocksCleared"}], 0])))
    assert (names(heard), heard.losses) == ([0, 1, 2], 0)


@pytest.mark.parametrize("replays", [False, True])
async def test_a_worker_that_counts_anew_has_an_empty_cache(replays: bool) -> None:
    """Numbers of the past with a newer time; also when the first ones of the new count were not heard."""
    worker = Worker()
    heard = stream(worker if replays else None)
    for number in range(5):
        await heard.take(frames(number))
    worker.kept = {number: payload(number, 100.0 + number) for number in range(4)}
    await heard.take(frames(2, payload(2, 102.0)))
    await heard.take(frames(3, payload(3, 103.0)))
    assert names(heard) == ([0, 1, 2, 3] if replays else [2, 3])
    assert heard.losses == 1


async def test_a_worker_that_was_down_may_count_anew_at_an_older_time() -> None:
    """Its clock may have been set back meanwhile."""
    heard = stream()
    for number in range(5):
        await heard.take(frames(number, payload(number, 1000.0)))
    heard.suspect()
    await heard.take(frames(0, payload(0, 10.0)))
    await heard.take(frames(1, payload(1, 11.0)))
    assert (names(heard), heard.losses) == ([0, 1], 1)


async def test_a_worker_that_was_only_slow_goes_on() -> None:
    """To be suspected costs nothing when the next number is the next one."""
    heard = stream()
    await heard.take(frames(0))
    heard.suspect()
    await heard.take(frames(1))
    await heard.take(frames(0))
    assert (names(heard), heard.losses) == ([0, 1], 0)


async def test_a_message_that_cannot_be_read_is_a_loss() -> None:
    """Its number is known, what it removed is not."""
    heard = stream()
    for number in (0, 1):
        await heard.take(frames(number))
    await heard.take(frames(2, b"\xc1"))
    await heard.take(frames(3))
    await heard.take(frames(1, b"\xc1"))
    assert (names(heard), heard.losses) == ([3], 1)


@pytest.mark.parametrize(
    "message",
    [
        [],
        [b""],
        [b"topic", b"short", payload(1)],
        [b"topic", b"\x00" * 9, payload(1)],
        [b"topic", (-1).to_bytes(8, signed=True), payload(1)],
        [b"a", b"topic", (1).to_bytes(8), payload(1)],
    ],
)
async def test_frames_that_are_no_message_are_passed_over(message: list[bytes], logged: list[Any]) -> None:
    """And logged once, however many come."""
    heard = stream()
    await heard.take(frames(0))
    for _ in range(50):
        await heard.take(message)
    await heard.take(frames(1))
    assert (names(heard), heard.losses, heard.garbage) == ([0, 1], 0, 50)
    assert [line["event"] for line in logged] == ["kv_events.garbage"]


async def test_a_message_without_a_topic_is_one() -> None:
    """Number and payload are the last two frames."""
    heard = stream()
    await heard.take(frames(0)[1:])
    assert names(heard) == [0]
