"""Where one process sent a conversation or a prompt, the others send what follows."""

import random
from typing import Any

import pytest
from attrs import evolve

from plugins.dispatch.policies.conversation import StickyConversation
from plugins.dispatch.policies.kv_events import KvEvents
from plugins.dispatch.policies.prefix import Prefix
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.policy import Facts
from plugins.dispatch.state.siblings import Siblings
from plugins.dispatch.worker import Worker
from tests.dispatch.policies.support import chat, completion
from tests.dispatch.state.support import Process, processes

pytestmark = pytest.mark.anyio

WORKERS = 4


def named(number: int, turn: int) -> Facts:
    """A turn of a conversation that says who it is."""
    return chat(*["hi"] * (2 * turn + 1), conversation=f"c{number}")


def unnamed(number: int, turn: int) -> Facts:
    """A turn of one that does not."""
    return chat(f"{number} first " * 400, *(f"{number} {part} " * 200 for part in range(2 * turn)))


def opened(number: int, turn: int) -> Facts:
    """A turn of one that is known by its first two messages."""
    return chat("be brief", f"question {number}", *["more"] * turn)


def numbered(number: int, turn: int) -> Facts:
    """A turn of token ids."""
    return completion([number * 100_000 + token for token in range(512 * (turn + 1))])


CASES: list[tuple[Any, Any]] = [
    (StickyConversation(), named),
    (StickyConversation(match_threshold=0.3), unnamed),
    (Prefix(), unnamed),
    (Prefix(), numbered),
    (KvEvents(), named),
    (KvEvents("polled"), named),
    (KvEvents("polled"), opened),
]


def kept(processes_: list[Process], turns: Any, conversations: int = 40) -> float:
    """The share of later turns, each in any process, that reach the worker of the first one."""
    chance = random.Random(9)
    homes: dict[int, str] = {}
    hits = turns_done = 0
    for turn in range(3):
        for number in chance.sample(range(conversations), conversations):
            held = chance.choice(processes_).send(turns(number, turn))
            if turn:
                turns_done += 1
                hits += held.worker.url == homes[number]
            homes.setdefault(number, held.worker.url)
            held.finish()
    return hits / turns_done


@pytest.mark.parametrize(("policy", "turns"), CASES)
async def test_later_turns_reach_the_worker_of_the_first(policy: Any, turns: Any) -> None:
    """In whichever process they are, at once; without this, about one in two would."""
    with processes(policy, WORKERS, 3) as (_, started):
        assert kept(started, turns) == 1.0


@pytest.mark.parametrize(("policy", "turns"), CASES)
async def test_a_process_that_begins_knows_what_was_chosen_before(policy: Any, turns: Any) -> None:
    """By all others, and by the one that had its place."""
    with processes(policy, WORKERS) as (board, (one, two)):
        homes = [(one, two)[number % 2].send(turns(number, 0)) for number in range(8)]
        new = Process(Siblings(board, 0), evolve(policy)).add(WORKERS)
        await new.company.caught_up.wait()
        for number, held in enumerate(homes):
            held.finish()
            assert new.send(turns(number, 1)).worker.url == held.worker.url
        new.roster.close()


@pytest.mark.parametrize(
    ("policy", "turns"),
    [
        (StickyConversation(), named),
        (StickyConversation(match_threshold=0.3), unnamed),
        (KvEvents("polled"), named),
        (KvEvents("polled"), opened),
    ],
)
async def test_who_placed_a_conversation_last_is_right(policy: Any, turns: Any) -> None:
    """When two processes place the same one at the same moment, or it has to move, all agree afterwards."""
    with processes(policy, WORKERS) as (_, (one, two)):
        two.send(chat("something else"))  # so that they do not choose the same worker by chance
        hear, one.company._reels = one.company._reels, []
        other, two.company._reels = two.company._reels, []
        first, second = one.send(turns(1, 0)), two.send(turns(1, 0))
        assert first.worker.url != second.worker.url
        one.company._reels, two.company._reels = hear, other
        third, fourth = one.send(turns(1, 1)), two.send(turns(1, 1))
        assert third.worker.url == fourth.worker.url == second.worker.url
        home = one.roster.find(second.worker.url)
        assert home is not None
        one.roster.remove(home)
        moved = one.send(turns(1, 2))
        assert moved.worker.url != second.worker.url
        assert two.send(turns(1, 2)).worker.url == moved.worker.url


async def test_a_worker_that_only_another_process_has_is_not_chosen() -> None:
    """What is heard of it is of no use yet."""
    with processes(StickyConversation(), 1) as (_, (one, two)):
        late = Worker("http://w9:8000", 0, up=True)
        one.roster.add(late)
        homes = [one.send(named(number, 0)).worker.url for number in range(4)]
        assert set(homes) == {"http://w0:8000", "http://w9:8000"}
        assert {two.send(named(number, 1)).worker.url for number in range(4)} == {"http://w0:8000"}


async def test_what_is_known_stays_bounded() -> None:
    """However much the others choose."""
    policy = StickyConversation(max_sessions=20)
    with processes(policy, 2) as (_, (one, two)):
        for number in range(100):
            one.send(named(number, 0)).finish()
            one.send(unnamed(number, 0)).finish()
        two.company.hear()
        assert len(two.policy._sessions) <= 20  # type: ignore[attr-defined]
        assert two.policy._sessions.blocks <= 200  # type: ignore[attr-defined]
    prefix = Prefix(max_blocks=1024)
    with processes(prefix, 2) as (_, (one, two)):
        for number in range(100):
            one.send(unnamed(number, 2)).finish()
        two.company.hear()
        assert 500 < len(two.policy._index) <= 1024  # type: ignore[attr-defined]


async def test_what_is_known_already_is_not_told_again() -> None:
    """The same prompt once more costs the others nothing."""
    for policy, turns in CASES[:4]:
        with processes(policy, 2) as (board, (one, _)):
            one.send(turns(1, 0)).finish()
            head = board.rows[0][1][1]
            one.send(turns(1, 0)).finish()
            assert board.rows[0][1][1] == head
            if turns is not named:
                one.send(turns(1, 1)).finish()
                assert board.rows[0][1][1] - head < 30


async def test_processes_do_not_all_begin_with_the_same_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same requests in each, round robins go round side by side, also by weight."""
    for weights in ((1.0, 1.0, 1.0), (1.0, 2.0, 4.0)):
        firsts = []
        for place in range(3):
            monkeypatch.setattr("plugins.dispatch.candidates.own_place", lambda place=place: place)
            monkeypatch.setattr("plugins.dispatch.policies.round_robin.own_place", lambda place=place: place)
            with processes(RoundRobin(), 0, 1) as (_, (one,)):
                for number, weight in enumerate(weights):
                    one.roster.add(Worker(f"http://w{number}:8000", 0, up=True, weight=weight))
                firsts.append([one.send().worker.index for _ in range(4)])
        assert len({tuple(first) for first in firsts}) == 3, firsts
