"""Who is ejected from a pool, and who is not although it fails: nobody stands out where all are alike."""

import pytest

from plugins.dispatch.breaker import BreakerConfig
from plugins.dispatch.circuit import State, Verdict
from tests.dispatch.retries.support import Fleet

SHARES = BreakerConfig(failures=1000, requests=10, failure_share=0.5)


def states(fleet: Fleet) -> list[State]:
    """The state of each worker."""
    return [fleet.state(index) for index in range(fleet.count)]


def test_a_share_of_failures_ejects_a_worker_that_never_fails_often_in_a_row() -> None:
    """Every other request fails, and the others of the pool are well."""
    fleet = Fleet(4, SHARES)
    for _ in range(5):
        fleet.serve(1, 2, 3)
        fleet.end(0, Verdict.SUCCESS, Verdict.FAILURE)
    assert (fleet.state(0), fleet.members) == (State.OPEN, [1, 2, 3])


def test_a_few_requests_prove_nothing() -> None:
    """The share is looked at from a number of requests on."""
    fleet = Fleet(4, SHARES)
    fleet.fail(0, 9)
    assert fleet.state(0) is State.CLOSED
    fleet.fail(0)
    assert fleet.state(0) is State.OPEN


def test_a_share_counts_for_a_while_only() -> None:
    """What failed before the window is forgotten."""
    fleet = Fleet(4, SHARES)
    fleet.fail(0, 9)
    fleet.after(60)
    fleet.fail(0)
    assert fleet.state(0) is State.CLOSED


def test_a_worker_that_fails_as_the_others_do_is_not_ejected() -> None:
    """It has to fail twice as often as they."""
    fleet = Fleet(4, SHARES)
    for _ in range(40):
        for index in range(1, 4):
            fleet.end(index, Verdict.FAILURE, Verdict.SUCCESS, Verdict.SUCCESS)
        fleet.end(0, Verdict.FAILURE, Verdict.SUCCESS, Verdict.FAILURE, Verdict.FAILURE, Verdict.SUCCESS)
    assert states(fleet) == [State.CLOSED] * 4


def test_workers_that_fail_fast_do_not_look_like_the_rule() -> None:
    """The others may be at long answers of which none has ended yet."""
    fleet = Fleet(8)
    for _ in range(30):
        fleet.fail(0)
        fleet.fail(1)
    assert fleet.members == [2, 3, 4, 5, 6, 7]


def test_where_all_fail_nobody_is_ejected() -> None:
    """It is the request, the model, or what all of them need: fewer workers would not help."""
    fleet = Fleet(4)
    for _ in range(50):
        for index in range(4):
            fleet.fail(index)
    assert states(fleet) == [State.CLOSED] * 4


@pytest.mark.parametrize(("count", "ejected"), [(1, 0), (2, 1), (3, 1), (4, 2), (9, 4)])
def test_no_more_than_half_of_a_pool_is_ejected(count: int, ejected: int) -> None:
    """Also one after the other, when each stands out in its time."""
    fleet = Fleet(count, BreakerConfig(failures=3, open_seconds=1000, max_open_seconds=1000, failure_share=1.0))
    for index in range(count):
        fleet.serve(*[other for other in fleet.members if other != index])
        fleet.fail(index, 20)
    assert len(fleet.members) == count - ejected


def test_a_worker_is_as_much_of_a_pool_as_its_weight() -> None:
    """The one that takes most of the traffic is not ejected, and a small one is."""
    fleet = Fleet(2)
    fleet.worker(0).weight = 3.0
    fleet.fail(0, 20)
    assert fleet.members == [0, 1]
    fleet.serve(0)
    fleet.fail(1, 20)
    assert fleet.members == [0]


def test_workers_that_are_down_are_out_already() -> None:
    """And those that drain are no part of the pool any more."""
    fleet = Fleet(4)
    for index in (0, 1):
        fleet.worker(index).up = False
        fleet.roster.refresh(fleet.worker(index))
    fleet.serve(3)
    fleet.fail(2, 20)
    assert fleet.members == [2, 3]
    for index in (0, 1):
        fleet.roster.drain(fleet.worker(index))
    fleet.fail(2)
    assert fleet.members == [3]


def test_the_last_worker_is_not_held_back() -> None:
    """When all others go down, an ejected worker is better than none."""
    fleet = Fleet(2)
    fleet.eject(0)
    fleet.worker(1).up = False
    fleet.roster.refresh(fleet.worker(1))
    assert fleet.members == []
    fleet.after(0)
    assert (fleet.state(0), fleet.members) == (State.CLOSED, [0])
    fleet.fail(0, 50)
    assert fleet.members == [0]


def test_a_worker_that_leaves_the_pool_is_forgotten() -> None:
    """What was sent to it still ends, and ejects nobody."""
    fleet = Fleet(3)
    fleet.roster.left = fleet.breakers.forget
    fleet.eject(0)
    worker = fleet.worker(0)
    fleet.roster.remove(worker)
    fleet.after(1000)
    for _ in range(10):
        fleet.breakers.end(worker, Verdict.FAILURE, fleet.clock(), probe=True)
    assert [one.index for one in fleet.roster.members] == [1, 2]
    assert fleet.breakers.trying == []
    assert fleet.breakers.out == set()


def test_when_a_pool_ends_its_breakers_do() -> None:
    """What was sent before still ends, and ejects nobody."""
    fleet = Fleet(3)
    fleet.eject(0)
    fleet.after(8)
    assert fleet.breakers.begin(fleet.worker(0))
    fleet.roster.close()
    fleet.breakers.close()
    for index in range(3):
        for _ in range(10):
            fleet.breakers.end(fleet.worker(index), Verdict.FAILURE, fleet.clock(), probe=True)
    assert fleet.breakers.out == set()
