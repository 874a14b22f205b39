"""Policies choose among the workers that they are given, and nothing else."""

from collections import Counter
from collections.abc import Sequence

import pytest

from plugins.dispatch.policies.least_loaded import LeastLoaded
from plugins.dispatch.policies.round_robin import RoundRobin
from plugins.dispatch.policy import Facts, Policy
from plugins.dispatch.worker import Role, Worker
from plugins.slots import Payload

FACTS = Facts(Role.GENERATION, Payload(b"{}", {}))


def workers(count: int) -> list[Worker]:
    """Workers without load."""
    return [Worker(f"http://w{index}", index, up=True) for index in range(count)]


def chosen(policy: Policy, candidates: Sequence[Worker], times: int) -> list[int]:
    """The places of the workers chosen, each choice adding load."""
    places = []
    for _ in range(times):
        worker = policy.choose(candidates, FACTS)
        worker.load += 1
        places.append(worker.index)
    return places


@pytest.mark.parametrize("policy", [RoundRobin(), LeastLoaded()])
def test_equal_workers_take_turns(policy: Policy) -> None:
    """Among equals, both policies go round in the order of the configuration."""
    assert chosen(policy, workers(3), 7) == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_does_not_look_at_load() -> None:
    """A loaded worker still gets its turn."""
    pool = workers(2)
    pool[0].load = 50
    assert chosen(RoundRobin(), pool, 4) == [0, 1, 0, 1]


def test_a_missing_worker_does_not_double_its_neighbours_share() -> None:
    """With one of four missing, the other three share evenly."""
    pool = workers(4)
    assert Counter(chosen(RoundRobin(), [pool[0], pool[2], pool[3]], 99)) == {0: 33, 2: 33, 3: 33}


def test_turns_go_on_where_they_were_when_the_candidates_change() -> None:
    """A worker that is left out for one choice only shifts that one."""
    pool = workers(3)
    policy = RoundRobin()
    assert chosen(policy, pool, 1) == [0]
    assert chosen(policy, [pool[0], pool[2]], 1) == [2]
    assert chosen(policy, pool, 3) == [0, 1, 2]


def test_least_loaded_levels_what_is_uneven() -> None:
    """New load goes to the emptier workers until all are level, then round."""
    pool = workers(3)
    pool[0].load, pool[1].load = 4, 2
    chosen(LeastLoaded(), pool, 6)
    assert [worker.load for worker in pool] == [4, 4, 4]


def test_a_policy_is_equal_to_another_with_the_same_configuration() -> None:
    """What a policy remembers is no part of its configuration."""
    used = RoundRobin()
    chosen(used, workers(2), 1)
    others: list[Policy] = [RoundRobin(), LeastLoaded()]
    assert [used == other for other in others] == [True, False]
