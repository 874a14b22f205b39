"""The retry budget: a share of the requests, a little for quiet times, and no more than was saved."""

from plugins.dispatch.budget import RetryBudget
from tests.dispatch.policies.support import Clock


def budget(share: float = 0.0, floor: float = 0.0, cap: float = 100.0) -> tuple[RetryBudget, Clock]:
    """A budget and its clock."""
    clock = Clock()
    return RetryBudget(share, floor, cap, clock), clock


def taken(budget: RetryBudget) -> int:
    """How many retries it pays for now."""
    count = 0
    while budget.take():
        count += 1
    return count


def test_a_share_of_the_requests_may_be_retried() -> None:
    """A hundred requests bring twenty retries."""
    found, _ = budget(share=0.25)
    for _ in range(80):
        found.deposit()
    assert taken(found) == 20


def test_a_quiet_system_may_retry() -> None:
    """Ten seconds' worth from the start, and a little each second, in fractions as well."""
    found, clock = budget(floor=0.5)
    assert taken(found) == 5
    clock.now += 1
    assert not found.take()
    clock.now += 1
    assert taken(found) == 1


def test_no_more_than_the_cap_is_saved() -> None:
    """A long good time does not pay for a storm."""
    found, clock = budget(share=1.0, floor=1.0, cap=7.0)
    for _ in range(100):
        found.deposit()
    clock.now += 1000
    assert taken(found) == 7


def test_nothing_comes_from_nothing() -> None:
    """Without share and floor there are no retries."""
    found, clock = budget()
    found.deposit()
    clock.now += 1000
    assert taken(found) == 0
