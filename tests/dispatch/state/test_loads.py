"""What one process has on workers counts in the others, and is gone with it."""

import random

import pytest

from plugins.dispatch.policies.consistent_hash import ConsistentHash
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.roster import Roster
from plugins.dispatch.shares import Shares
from plugins.dispatch.state.roster import make_roster
from plugins.dispatch.state.siblings import Siblings
from plugins.dispatch.worker import Worker
from tests.dispatch.policies.support import Held, chat
from tests.dispatch.state.support import Process, processes
from tests.dispatch.support import until

pytestmark = pytest.mark.anyio


def test_a_process_alone_has_a_plain_roster() -> None:
    """Nothing of all this is there, and nothing is asked on the way of a request."""
    roster = make_roster("pool", LeastLoaded(), Shares(), lambda _worker: None, lambda _worker: None)
    assert type(roster) is Roster


async def test_load_counts_in_every_process() -> None:
    """A worker that is busy for one process is not idle for another one; what is over is off it."""
    with processes(LeastLoaded(), 2) as (_, (one, two)):
        held = [one.send() for _ in range(3)]
        assert one.sees() == two.sees() == [(2, 2), (1, 1)]
        assert two.send().worker.index == 1
        assert two.send().worker.index in (0, 1)
        assert one.sees() == two.sees()
        for each in held:
            each.finish()
        assert sum(load for load, _ in one.sees()) == sum(load for load, _ in two.sees()) == 2
        assert one.roster.total == two.roster.total == 2


async def test_tokens_count_as_tokens() -> None:
    """The measure is the policy's."""
    with processes(LeastLoaded("tokens"), 2) as (_, (one, two)):
        one.send(chat("x" * 5000))
        (load, work), idle = two.sees()
        assert load == 1
        assert work > 1000
        assert idle == (0, 0)
        assert [two.send(chat("hello")).worker.index for _ in range(3)] == [1, 1, 1]


async def test_the_bound_on_load_is_one_for_all() -> None:
    """A key's worker that is full with another process's requests is passed over, and is the key's again afterwards."""
    with processes(ConsistentHash(), 3) as (_, (one, two)):
        held = [one.send(chat("hi", conversation="a"))]
        home = held[0].worker.index
        while one.roster.at(home).load < 6:
            held.append(one.send(chat("hi", conversation="a")))
        for each in held:
            if each.worker.index != home:
                each.finish()
        two.sees()
        assert two.send(chat("hi", conversation="a")).worker.index != home
        for each in held:
            if not each.over:
                each.finish()
        two.sees()
        assert two.send(chat("hi", conversation="a")).worker.index == home


async def test_it_is_heard_without_being_asked_for() -> None:
    """By a timer that runs while there are workers."""
    with processes(LeastLoaded(), 2) as (_, (one, two)):
        one.send()
        await until(lambda: two.roster.at(0).load == 1)
        timer = two.company._timer
        assert timer is not None
    assert two.company._timer is None
    assert not two.company._entries


async def test_a_process_that_is_gone_has_nothing_on_workers() -> None:
    """Once its supervisor says so, or the next one begins in its place."""
    for by_supervisor in (True, False):
        with processes(LeastLoaded(), 2, 3) as (board, (one, two, three)):
            for process in (one, one, three):
                process.send()
            assert [load for load, _ in two.sees()] == [2, 1]
            if by_supervisor:
                board.wipe(0)
            else:
                Siblings(board, 0)
            assert [load for load, _ in two.sees()] == [1, 0]
            assert two.roster.total == 1


async def test_workers_come_and_go_in_one_process_before_the_other() -> None:
    """A reload reaches processes one after the other; whoever knows a worker hears of all that is on it."""
    with processes(LeastLoaded(), 1) as (_, (one, two)):
        late = Worker("http://w9:8000", 0, up=True)
        one.roster.add(late)
        for _ in range(4):
            one.send()
        assert two.sees() == [(2, 2)]
        two.roster.add(Worker("http://w9:8000", 0, up=True))
        assert two.sees() == [(2, 2), (2, 2)]
        one.roster.remove(late)
        assert two.sees() == [(2, 2), (0, 0)]
        one.roster.discharge(late, 1)
        assert two.sees() == [(2, 2), (0, 0)]
        one.roster.add(Worker("http://w9:8000", 0, up=True))
        assert one.sees() == two.sees()


async def test_pools_are_told_apart() -> None:
    """By their name, their policy and its measure: what is on a worker by another count is not added to it."""
    with processes(LeastLoaded(), 1) as (_, (one, two)):
        other = Process(one.company, LeastLoaded("tokens")).add(1)
        other.send(chat("x" * 5000))
        assert two.sees() == [(0, 0)]
        again = Process(one.company, LeastLoaded()).add(1)
        again.send()
        one.send()
        assert two.sees() == [(2, 2)]
        for process in (other, again):
            process.roster.close()
        assert two.sees() == [(1, 1)]


async def test_members_alone_make_the_total() -> None:
    """What is lent to a worker that takes no requests is not in it, until it does."""
    with processes(LeastLoaded(), 2) as (_, (one, two)):
        worker = two.roster.at(0)
        worker.up = False
        two.roster.refresh(worker)
        for _ in range(4):
            one.send()
        two.sees()
        assert (worker.load, two.roster.total) == (2, 2)
        worker.up = True
        two.roster.refresh(worker)
        assert two.roster.total == 4


async def test_nothing_is_left_whatever_happens() -> None:
    """Requests begin and end in any order over three processes, which hear of each other now and then."""
    chance = random.Random(8)
    with processes(LeastLoaded(), 5, 3) as (_, started):
        held = list[Held]()
        for _ in range(3000):
            process = chance.choice(started)
            if held and chance.random() < 0.5:
                held.pop(chance.randrange(len(held))).finish()
            else:
                held.append(process.send())
            if chance.random() < 0.1:
                process.company.borrow()
        seen = [process.sees() for process in started]
        assert seen[0] == seen[1] == seen[2]
        assert sum(load for load, _ in seen[0]) == len(held)
        for each in held:
            each.finish()
        for process in started:
            assert process.sees() == [(0, 0)] * 5
            assert process.roster.total == 0


async def test_without_a_free_slot_a_worker_is_not_told_of() -> None:
    """Nor is anything wrong with it."""
    with processes(RoundRobin(), 1) as (_, (one, two)):
        while one.company._slots.take(1) is not None:
            pass
        one.add(0).roster.add(Worker("http://w9:8000", 0, up=True))
        for _ in range(4):
            one.send()
        assert one.sees() == [(2, 2), (2, 2)]
        assert two.sees() == [(2, 2)]
        one.roster.remove(one.roster.at(1))
