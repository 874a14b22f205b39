"""The states of a worker's breaker, and what moves it from one to the next."""

import pytest

from plugins.dispatch.breaker import BreakerConfig
from plugins.dispatch.circuit import State, Verdict
from tests.dispatch.retries.support import Fleet

FAILURE, SUCCESS, NEUTRAL, PRESSURE = Verdict.FAILURE, Verdict.SUCCESS, Verdict.NEUTRAL, Verdict.PRESSURE


def test_failures_in_a_row_eject_a_worker() -> None:
    """The configured number of them, and a success between them starts the count again."""
    fleet = Fleet(3)
    fleet.end(0, FAILURE, FAILURE, SUCCESS, FAILURE, FAILURE)
    assert (fleet.state(0), fleet.members) == (State.CLOSED, [0, 1, 2])
    fleet.fail(0)
    assert (fleet.state(0), fleet.members) == (State.OPEN, [1, 2])


@pytest.mark.parametrize("verdict", [NEUTRAL, PRESSURE])
def test_what_is_not_the_workers_fault_counts_neither_way(verdict: Verdict) -> None:
    """A 4xx, a 429 or 503, and a client that left are no failure and no success."""
    fleet = Fleet(3)
    fleet.end(0, *[verdict] * 50)
    assert fleet.state(0) is State.CLOSED
    fleet.end(0, FAILURE, FAILURE, verdict, FAILURE)
    assert fleet.state(0) is State.OPEN


def test_an_ejected_worker_is_tried_when_its_time_is_over() -> None:
    """Not before, and nothing has to ask about it."""
    fleet = Fleet(3)
    fleet.eject(0)
    fleet.after(7.9)
    assert (fleet.state(0), fleet.members) == (State.OPEN, [1, 2])
    fleet.after(0.2)
    assert (fleet.state(0), fleet.members) == (State.HALF_OPEN, [0, 1, 2])


def test_a_worker_that_is_to_be_tried_is_not_eased_in() -> None:
    """One request is little enough, and should come soon; when it has succeeded, the worker is as good as new."""
    fleet = Fleet(3, slow_start=10.0)
    fleet.eject(0)
    fleet.after(8)
    assert fleet.worker(0).share == 1.0
    fleet.serve(0)
    assert fleet.worker(0).share == 0.1


def test_exactly_one_request_tries_it() -> None:
    """From its choice to its end the worker is no member, so that nobody else can choose it."""
    fleet = Fleet(3)
    fleet.eject(0)
    fleet.after(8)
    assert fleet.breakers.trying == ["http://w0:8000"]
    assert fleet.breakers.begin(fleet.worker(0))
    assert (fleet.state(0), fleet.members, fleet.breakers.trying) == (State.PROBED, [1, 2], [])
    fleet.breakers.end(fleet.worker(0), SUCCESS, fleet.clock(), probe=True)
    assert (fleet.state(0), fleet.members) == (State.CLOSED, [0, 1, 2])


@pytest.mark.parametrize("verdict", [NEUTRAL, PRESSURE])
def test_a_try_that_shows_nothing_gives_its_place_to_the_next(verdict: Verdict) -> None:
    """A 400 does not close a breaker, nor does a client that leaves keep it half open for good."""
    fleet = Fleet(3)
    fleet.eject(0)
    fleet.after(8)
    fleet.end(0, verdict)
    assert (fleet.state(0), fleet.members) == (State.HALF_OPEN, [0, 1, 2])
    fleet.serve(0)
    assert fleet.state(0) is State.CLOSED


def test_each_failed_try_doubles_the_time_up_to_a_bound() -> None:
    """So that a worker that stays broken costs less and less."""
    fleet = Fleet(3)
    fleet.eject(0)
    waited = []
    for _ in range(6):
        waited.append(fleet.worker(0).circuit.until - fleet.clock.now)
        fleet.after(waited[-1])
        fleet.fail(0)
    assert waited == [8, 16, 32, 64, 100, 100]


def test_good_times_shorten_the_next_ejection() -> None:
    """As many steps as the longest ejection fits into the time since."""
    fleet = Fleet(3)
    fleet.eject(0)
    for seconds in (8, 16):
        fleet.after(seconds)
        fleet.fail(0)
    fleet.after(32)
    fleet.serve(0)
    fleet.after(200)
    fleet.eject(0)
    assert fleet.worker(0).circuit.until - fleet.clock.now == 16


def test_workers_that_were_ejected_together_do_not_come_back_together() -> None:
    """A quarter of the time is drawn by lot."""
    fleet = Fleet(8)
    fleet.breakers.draw = iter((0.0, 1.0)).__next__
    fleet.eject(0)
    fleet.eject(1)
    assert [fleet.worker(index).circuit.until - fleet.clock.now for index in (0, 1)] == [8, 6]


def test_a_stream_that_has_begun_well_ends_the_try() -> None:
    """It may go on for minutes; if it breaks after all, the worker is out again at once."""
    fleet = Fleet(3)
    fleet.eject(0)
    fleet.after(8)
    worker = fleet.worker(0)
    assert fleet.breakers.begin(worker)
    fleet.breakers.vouch(worker)
    assert (fleet.state(0), fleet.members) == (State.CLOSED, [0, 1, 2])
    fleet.breakers.end(worker, FAILURE, fleet.clock(), probe=True)
    assert (fleet.state(0), fleet.members) == (State.OPEN, [1, 2])


@pytest.mark.parametrize("verdict", [SUCCESS, FAILURE])
def test_requests_from_before_an_ejection_change_nothing(verdict: Verdict) -> None:
    """Only the request that tries the worker tells how it is now."""
    fleet = Fleet(3)
    fleet.eject(0)
    fleet.breakers.end(fleet.worker(0), verdict, fleet.clock(), probe=False)
    assert fleet.state(0) is State.OPEN
    fleet.after(8)
    fleet.breakers.end(fleet.worker(0), verdict, fleet.clock(), probe=False)
    assert fleet.state(0) is State.HALF_OPEN


def test_a_worker_that_is_down_comes_back_by_both_ways() -> None:
    """The breaker's time does not bring a worker in that fails its health checks."""
    fleet = Fleet(3)
    fleet.eject(0)
    fleet.worker(0).up = False
    fleet.after(8)
    assert (fleet.state(0), fleet.members) == (State.HALF_OPEN, [1, 2])
    fleet.worker(0).up = True
    fleet.roster.refresh(fleet.worker(0))
    assert fleet.members == [0, 1, 2]


def test_a_worker_that_went_down_has_failed_once() -> None:
    """However many requests were on their way to it."""
    fleet = Fleet(3)
    fleet.fail(0)
    fleet.worker(0).up = False
    fleet.fail(0, 50)
    assert (fleet.state(0), fleet.worker(0).circuit.streak) == (State.CLOSED, 1)


def test_breakers_can_be_switched_off() -> None:
    """Then nothing is counted."""
    fleet = Fleet(3, BreakerConfig(failures=0))
    fleet.fail(0, 100)
    assert fleet.state(0) is State.CLOSED
