"""Who takes requests, for which share, and that the books are right whatever happens."""

import random
from typing import Any

import pytest
from attrs.exceptions import FrozenAttributeError

from plugins.dispatch.candidates import select
from plugins.dispatch.levels import Levels, indexes, next_in
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.roster import Roster
from tests.dispatch.policies.support import Clock, Held, among, places, roster_of, send, worker_of


def turn(roster: Roster, index: int, *, up: bool) -> None:
    """Have a worker go up or down."""
    roster.at(index).up = up
    roster.refresh(roster.at(index))


def test_sets_of_indexes() -> None:
    """Bits are read from the lowest, and the next one is found round the end."""
    assert list(indexes(0b1011)) == [0, 1, 3]
    assert [next_in(0b1010, index) for index in (-1, 0, 1, 2, 3, 9)] == [1, 1, 3, 3, 1, 1]


def test_levels_are_what_sorting_would_give() -> None:
    """After thousands of moves, the lowest and all below a limit are still found."""
    chance, levels, heights = random.Random(7), Levels(), dict[int, float]()
    for _ in range(5000):
        index = chance.randrange(70)
        if chance.random() < 0.2:
            levels.drop(index)
            heights.pop(index, None)
        else:
            heights[index] = chance.randrange(20) / chance.choice((1, 3))
            levels.put(index, heights[index])
        mask, limit = chance.getrandbits(70), chance.random() * 20
        inside = {place: height for place, height in heights.items() if mask >> place & 1}
        lowest = min(inside.values(), default=0.0)
        found = {place for place, height in inside.items() if height == lowest}
        assert levels.lowest(mask) == (lowest, sum(1 << place for place in found))
        assert levels.up_to(limit) == sum(1 << place for place, height in heights.items() if height <= limit)
    assert levels.heights == sorted(set(heights.values()))


def test_nobody_takes_requests_of_a_roster_without_workers_that_are_up() -> None:
    """There are no candidates, and never an empty set of them."""
    roster = roster_of(2)
    assert select(roster, roster.members) is None
    roster.close()
    assert select(roster) is None


def test_a_worker_to_be_avoided_is_taken_if_there_is_no_other() -> None:
    """Unlike one that was tried and failed."""
    roster = roster_of(3)
    avoided = [roster.at(1).url, "http://nobody:1"]
    assert [worker.index for worker in among(roster, avoid=avoided)] == [0, 2]
    assert [worker.index for worker in among(roster, [roster.at(0), roster.at(2)], avoided)] == [1]
    assert select(roster, roster.members, avoided) is None


def test_candidates_are_a_sequence() -> None:
    """Whoever does not know of sets can go through them as through a tuple."""
    roster = roster_of(5)
    candidates = among(roster, [roster.at(0), roster.at(3)])
    assert [worker.index for worker in candidates] == [1, 2, 4]
    assert (len(candidates), candidates[-1].index, [worker.index for worker in candidates[:2]]) == (3, 4, [1, 2])
    others: list[object] = [roster.at(1), roster.at(3), "w"]
    assert [other in candidates for other in others] == [True, False, False]
    assert worker_of(1) not in candidates
    assert min(candidates, key=lambda worker: worker.load).index == 1


def test_candidates_do_not_change() -> None:
    """Others choose from the same ones; there are new ones as soon as somebody comes or goes."""
    roster = roster_of(3)
    before = among(roster)
    assert among(roster) is before
    with pytest.raises(FrozenAttributeError):
        before.mask = 0
    turn(roster, 1, up=False)
    assert [worker.index for worker in among(roster)] == [0, 2]
    turn(roster, 1, up=True)
    assert [worker.index for worker in among(roster)] == [0, 1, 2]
    assert before.mask == 0b111


def test_a_draining_worker_gets_no_new_requests_and_keeps_what_it_has() -> None:
    """It may be taken back."""
    roster, policy = roster_of(2), LeastLoaded()
    held = [send(policy, roster) for _ in range(4)]
    roster.drain(roster.at(0))
    assert places(policy, roster, 3) == [1, 1, 1]
    turn(roster, 0, up=True)
    assert [worker.index for worker in roster.members] == [1]
    held[0].finish()
    assert roster.at(0).load == 1
    roster.drain(roster.at(0), draining=False)
    assert places(policy, roster, 1) == [0]


def test_a_place_is_given_to_the_next_one_and_load_stays_with_its_worker() -> None:
    """Requests of a worker that is gone end without counting for the one that has its place."""
    gone: list[Any] = []
    roster = roster_of(3)
    roster.left = gone.append
    old = roster.at(1)
    held = send(RoundRobin(), roster, but=[roster.at(0), roster.at(2)])
    roster.remove(old)
    roster.remove(old)
    assert gone == [old]
    with pytest.raises(LookupError, match="no worker at 1"):
        roster.at(1)
    new = worker_of(9)
    roster.add(new)
    assert (new.index, roster.find(new.url), roster.find(old.url)) == (1, new, None)
    assert [worker.index for worker in among(roster, [old])] == [0, 1, 2]
    held.finish()
    assert (old.load, new.load, roster.total) == (0, 0, 0)


def test_a_policy_hears_who_takes_requests() -> None:
    """Once for each change."""
    heard: list[tuple[int, bool]] = []
    roster = roster_of(2)
    roster.turned = lambda worker: heard.append((worker.index, roster.takes(worker)))
    for up in (False, False, True, True):
        turn(roster, 0, up=up)
    roster.drain(roster.at(1))
    roster.close()
    assert heard == [(0, False), (0, True), (1, False), (0, False)]


def test_a_worker_that_comes_back_is_eased_in() -> None:
    """It has a tenth of its share at first, and all of it when the time is over."""
    clock = Clock()
    roster = roster_of(2, slow_start=10, clock=clock)
    turn(roster, 0, up=False)
    places(LeastLoaded(), roster, 40)
    turn(roster, 0, up=True)
    assert roster.at(0).share == pytest.approx(0.1)
    assert places(LeastLoaded(), roster, 4).count(0) == 4  # a tenth of 40 is 4
    assert places(LeastLoaded(), roster, 10).count(0) == 1
    clock.now += 1
    among(roster)
    assert roster.at(0).share == pytest.approx(0.2)
    clock.now += 4.5  # nobody asked for anything meanwhile
    among(roster)
    assert roster.at(0).share == pytest.approx(0.6)
    clock.now += 4
    among(roster)
    assert roster.at(0).share == 1.0
    assert places(LeastLoaded(), roster, 10).count(0) == 10


def test_workers_that_begin_together_are_not_eased_in() -> None:
    """A start is no return; whoever comes in late is, even for the first time."""
    clock = Clock()
    roster = roster_of(2, slow_start=10, clock=clock)
    assert roster.shares.uniform
    clock.now += 11
    roster.add(worker_of(2))
    assert (roster.at(2).share, roster.shares.uniform) == (0.1, False)


def test_a_slow_start_begins_anew_with_each_return() -> None:
    """What was due from the time before does not count."""
    clock = Clock()
    roster = roster_of(2, slow_start=10, clock=clock)
    for _ in range(3):
        turn(roster, 0, up=False)
        turn(roster, 0, up=True)
        clock.now += 0.5
    clock.now += 0.3
    among(roster)
    assert roster.at(0).share == pytest.approx(0.1)
    clock.now += 0.3
    among(roster)
    assert roster.at(0).share == pytest.approx(0.2)


def test_a_worker_that_is_new_grows_on_from_where_it_is_when_its_weight_changes() -> None:
    """It has the same part of another share."""
    clock = Clock()
    roster = roster_of(2, slow_start=10, clock=clock)
    turn(roster, 0, up=False)
    turn(roster, 0, up=True)
    clock.now += 4
    among(roster)
    assert roster.at(0).share == pytest.approx(0.5)
    roster.reweigh(roster.at(0), 3.0)
    assert roster.at(0).share == pytest.approx(1.5)
    clock.now += 5
    among(roster)
    assert (roster.at(0).share, roster.at(1).share) == (3.0, 1.0)
    assert places(LeastLoaded(), roster, 40).count(0) == 30


def test_slow_start_holds_for_turns_too() -> None:
    """A returning worker has a tenth of the turns that it would have."""
    roster = roster_of(3, slow_start=10)
    turn(roster, 0, up=False)
    turn(roster, 0, up=True)
    assert places(RoundRobin(), roster, 210).count(0) == 10


def test_workers_that_come_back_together_are_equal() -> None:
    """The first one of them has no more than those behind it."""
    roster = roster_of(3, slow_start=10)
    for up in (False, True):
        for index in range(3):
            turn(roster, index, up=up)
    assert [worker.share for worker in roster.members] == [0.1, 0.1, 0.1]
    assert places(LeastLoaded(), roster, 6) == [0, 1, 2, 0, 1, 2]


def test_pressure_does_not_raise_a_share() -> None:
    """One that is new and under pressure is still new."""
    roster = roster_of(2, slow_start=10)
    for up in (False, True):
        turn(roster, 0, up=up)
    roster.ease(roster.at(0))
    assert roster.at(0).share == 0.1


def test_a_worker_under_pressure_has_half_its_share_for_a_while() -> None:
    """It comes back by itself; without slow start there is nothing to come back from."""
    clock = Clock()
    roster = roster_of(2, slow_start=10, clock=clock)
    roster.ease(roster.at(0))
    assert places(LeastLoaded(), roster, 30).count(0) == 10
    for _ in range(5):
        clock.now += 1
        among(roster)
    assert roster.at(0).share == 1.0
    plain = roster_of(2)
    plain.ease(plain.at(0))
    assert plain.at(0).share == 1.0


def test_the_books_are_right_after_anything() -> None:
    """Workers come, go, drain and fail while requests run: loads, order and sums are as if counted anew."""
    chance, clock = random.Random(3), Clock()
    policy = LeastLoaded("tokens")
    roster = roster_of(20, policy=policy, weights=[1, 2, 0.5, 1] * 5, slow_start=5, clock=clock)
    held: list[Held] = []
    number = 20
    for _ in range(4000):
        clock.now += chance.random() / 10
        match chance.randrange(12):
            case 0 if roster.known():
                turn(roster, chance.choice(roster.known()).index, up=chance.random() < 0.7)
            case 1 if roster.known():
                roster.drain(chance.choice(roster.known()), draining=chance.random() < 0.3)
                roster.reweigh(chance.choice(roster.known()), chance.choice((0.5, 1, 2)))
            case 2 if len(roster.known()) > 5:
                roster.remove(chance.choice(roster.known()))
            case 3 if len(roster.known()) < 30:
                roster.add(worker_of(number, chance.choice((1, 2))))
                number += 1
            case 4 | 5 | 6 if held:
                held.pop(chance.randrange(len(held))).finish()
            case _ if roster.members:
                held.append(send(policy, roster))
        assert roster.members == [worker for worker in roster.known() if worker.up and not worker.draining]
        assert roster.mask == sum(1 << worker.index for worker in roster.members)
        assert roster.total == sum(worker.work for worker in roster.members)
        assert roster.shares.total == pytest.approx(sum(worker.share for worker in roster.members))
        assert roster.shares.uniform is (len({worker.share for worker in roster.members}) <= 1)
        if roster.members:
            height, lowest = roster.levels.lowest(roster.mask)
            heights = [(worker.work + roster.unit) / worker.share for worker in roster.members]
            assert height == pytest.approx(min(heights))
            assert lowest.bit_count() == heights.count(min(heights))
    for request in held:
        request.finish()
    assert all(worker.load == worker.work == 0 for worker in roster.known())
