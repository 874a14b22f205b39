"""Policies that look at nothing but whose turn it is, and at the load."""

from collections import Counter
from typing import Any

import pytest

from plugins.dispatch.policies.at_random import Random
from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.policies.load_balancing import LoadBalancing
from plugins.dispatch.policies.power_of_two import PowerOfTwo
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.policy import Policy
from tests.dispatch.policies.support import chat, completion, places, roster_of, send, worker_of


@pytest.mark.parametrize("policy", [RoundRobin(), LeastLoaded(), LoadBalancing()])
def test_equal_workers_take_turns(policy: Policy) -> None:
    """Among equals, these policies go round in the order of the configuration."""
    assert places(policy, roster_of(3), 7) == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("policy", [LeastLoaded(), LoadBalancing(), LoadBalancing(use_tokens=True)])
def test_ties_go_round_even_if_each_request_ends_before_the_next(policy: Policy) -> None:
    """Idle workers are equal, and the first one does not get everything."""
    roster = roster_of(3, policy=policy)
    chosen = []
    for _ in range(6):
        held = send(policy, roster)
        chosen.append(held.worker.index)
        held.finish()
    assert chosen == [0, 1, 2, 0, 1, 2]


def test_round_robin_does_not_look_at_load() -> None:
    """A loaded worker still gets its turn."""
    roster = roster_of(2)
    roster.charge(roster.members[0], 50)
    assert places(RoundRobin(), roster, 4) == [0, 1, 0, 1]


def test_a_missing_worker_does_not_double_its_neighbours_share() -> None:
    """With one of four down, the other three share evenly."""
    roster = roster_of(4)
    roster.members[1].up = False
    roster.refresh(roster.at(1))
    assert Counter(places(RoundRobin(), roster, 99)) == {0: 33, 2: 33, 3: 33}


def test_turns_go_on_where_they_were_when_the_candidates_change() -> None:
    """A worker that is left out for one choice only shifts that one."""
    roster, policy = roster_of(3), RoundRobin()
    assert places(policy, roster, 1) == [0]
    assert send(policy, roster, but=[roster.at(1)]).worker.index == 2
    assert places(policy, roster, 3) == [0, 1, 2]


def test_turns_survive_a_removal() -> None:
    """The order goes on with those that are left."""
    roster, policy = roster_of(3), RoundRobin()
    assert places(policy, roster, 2) == [0, 1]
    roster.remove(roster.at(2))
    assert places(policy, roster, 3) == [0, 1, 0]


def test_least_loaded_levels_what_is_uneven() -> None:
    """New load goes to the emptier workers until all are level, then round."""
    roster = roster_of(3)
    for index, load in ((0, 4), (1, 2)):
        for _ in range(load):
            roster.charge(roster.at(index), 1)
    places(LeastLoaded(), roster, 6)
    assert [worker.load for worker in roster.members] == [4, 4, 4]


def test_a_finished_request_makes_room() -> None:
    """The next one goes where one has ended."""
    roster, policy = roster_of(3), LeastLoaded()
    held = [send(policy, roster) for _ in range(6)]
    held[4].finish()
    assert places(policy, roster, 1) == [1]


@pytest.mark.parametrize("policy", [LeastLoaded("tokens"), LoadBalancing(use_tokens=True)])
def test_tokens_count_and_not_requests(policy: Any) -> None:
    """One long prompt weighs more than many short ones, of ids as of text, and is given back as it was counted."""
    roster = roster_of(2, policy=policy)
    long = send(policy, roster, completion(list(range(1000))))
    assert (long.worker.index, long.work) == (0, 1000)
    assert places(policy, roster, 5, chat("x" * 500)) == [1] * 5
    long.finish()
    assert places(policy, roster, 3, completion("y" * 50)) == [0] * 3
    assert [worker.work for worker in roster.members] == [30, 5 * ((500 + 6) // 5)]


@pytest.mark.parametrize(
    ("policy", "shares"),
    [
        (RoundRobin(), [100, 200, 400]),
        (LeastLoaded(), [100, 200, 400]),
        (LoadBalancing(), [100, 200, 400]),
    ],
)
def test_weights_are_kept_exactly(policy: Policy, shares: list[int]) -> None:
    """Twice the weight is twice the requests."""
    assert Counter(places(policy, roster_of(3, weights=(1, 2, 4)), 700)) == dict(enumerate(shares))


@pytest.mark.parametrize("policy", [Random(), PowerOfTwo()])
def test_weights_are_kept_by_chance(policy: Policy) -> None:
    """Of 7,000 requests, within a fifth of what each should have."""
    counted = Counter(places(policy, roster_of(3, weights=(1, 2, 4)), 7000))
    for index, expected in enumerate((1000, 2000, 4000)):
        assert 0.8 * expected < counted[index] < 1.2 * expected


def test_a_heavy_worker_does_not_have_its_turns_in_a_row() -> None:
    """The turns of different weights are mixed."""
    chosen = places(RoundRobin(), roster_of(2, weights=(3, 1)), 8)
    assert "0000" not in "".join(map(str, chosen))
    assert Counter(chosen) == {0: 6, 1: 2}


def test_random_reaches_everybody_evenly() -> None:
    """Of 9,000 choices among nine, each has about a ninth; one that is left out has none."""
    roster = roster_of(10)
    out = roster.at(3)
    counted = Counter(send(Random(), roster, but=[out]).worker.index for _ in range(9000))
    assert counted.keys() == set(range(10)) - {3}
    assert all(700 < times < 1300 for times in counted.values())


@pytest.mark.parametrize("policy", [Random(), PowerOfTwo()])
def test_the_last_candidate_is_found_among_many_that_are_left_out(policy: Policy) -> None:
    """Drawing until one fits is given up in time."""
    roster = roster_of(500)
    assert send(policy, roster, but=roster.members[:-1]).worker.index == 499


def test_power_of_two_never_takes_the_most_loaded() -> None:
    """Whatever two are drawn, one of them is less loaded."""
    roster = roster_of(5)
    for _ in range(10):
        roster.charge(roster.at(2), 1)
    assert 2 not in places(PowerOfTwo(), roster, 20)


def test_power_of_two_is_nearly_even() -> None:
    """A burst of 1,000 over ten workers stays within a tenth of the mean."""
    roster = roster_of(10)
    places(PowerOfTwo(), roster, 1000)
    assert all(90 <= worker.load <= 110 for worker in roster.members)


def test_a_worker_that_joins_takes_turns_at_once() -> None:
    """Turns of different weights go on without a burst to whoever is new."""
    roster, policy = roster_of(2, weights=(1, 3)), RoundRobin()
    places(policy, roster, 400)
    roster.add(worker_of(2))
    assert Counter(places(policy, roster, 500)) == {0: 100, 1: 300, 2: 100}


def test_a_policy_is_equal_to_another_with_the_same_configuration() -> None:
    """What a policy remembers is no part of its configuration."""
    used = RoundRobin()
    places(used, roster_of(2), 1)
    others: list[Policy] = [RoundRobin(), LeastLoaded()]
    assert [used == other for other in others] == [True, False]
