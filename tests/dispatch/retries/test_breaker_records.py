"""What breakers remember, report and take as configuration."""

from typing import Any

import pytest

from plugins.dispatch.breaker import BreakerConfig
from plugins.dispatch.circuit import Window
from plugins.dispatch.retry import RetryConfig
from plugins.metrics import BREAKERS_OPEN, EJECTIONS, child
from tests.dispatch.retries.support import Fleet


def test_ejections_are_counted_and_logged(logged: list[Any]) -> None:
    """By model, role and reason; the worker is in the log alone."""
    fleet, ejections = Fleet(3, model="counted"), child(EJECTIONS, "counted", "context", "consecutive")
    open_now, before = child(BREAKERS_OPEN, "counted", "context"), ejections._value.get()
    fleet.eject(0)
    assert (open_now._value.get(), ejections._value.get() - before) == (1, 1)
    fleet.after(8)
    fleet.serve(0)
    assert open_now._value.get() == 0
    fleet.eject(1)
    fleet.breakers.close()
    assert open_now._value.get() == 0
    first, second, _ = logged
    assert (first["event"], first["worker"], first["failures"], first["seconds"]) == (
        "worker.ejected", "http://w0:8000", 3, 8.0,
    )  # fmt: skip
    assert (second["event"], second["worker"]) == ("worker.admitted", "http://w0:8000")


def test_a_window_forgets_what_is_old() -> None:
    """By halves: what it counts is at least half of its length old and at most all of it."""
    window = Window()
    window.note(100.0, 30.0, failed=True)
    window.note(101.0, 30.0, failed=False)
    assert window.totals(114.0, 30.0) == (1, 2)
    window.note(116.0, 30.0, failed=False)
    assert window.totals(129.0, 30.0) == (1, 3)
    assert window.totals(132.0, 30.0) == (0, 1)
    assert window.totals(500.0, 30.0) == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"failures": -1},
        {"failure_share": 0},
        {"failure_share": 1.5},
        {"open_seconds": 0},
        {"open_seconds": 200},
        {"max_open_seconds": float("inf")},
        {"window_seconds": float("nan")},
        {"ejected_share": 2},
        {"requests": 0},
    ],
)
def test_breakers_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    """When the file is read."""
    with pytest.raises(ValueError, match=next(iter(fields))):
        BreakerConfig(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"attempts": -1},
        {"attempts": 11},
        {"budget_share": 1.5},
        {"budget_share": float("nan")},
        {"budget_floor": float("inf")},
        {"budget_cap": 0},
        {"pause_seconds": 0},
        {"max_pause_seconds": -1},
        {"pause_seconds": 2, "max_pause_seconds": 1},
    ],
)
def test_retries_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    """When the file is read as well."""
    with pytest.raises(ValueError, match=next(iter(fields))):
        RetryConfig(**fields)
