"""`finish`: work that outlives a cancellation, for a limited time."""

import asyncio

import pytest

from kernel.race import finish
from tests.kernel.support import turn

pytestmark = pytest.mark.anyio


class Work:
    """Work that ends when it is told to."""

    def __init__(self) -> None:
        self.may_end, self.state = asyncio.Event(), "new"

    async def __call__(self) -> None:
        """Run."""
        try:
            self.state = "running"
            await self.may_end.wait()
            self.state = "ended"
        except asyncio.CancelledError:
            self.state = "cancelled"
            raise


async def test_work_is_run_to_its_end() -> None:
    """And its error is raised."""
    work = Work()
    work.may_end.set()
    await finish(work(), 10)
    assert work.state == "ended"

    async def fall() -> None:
        raise KeyError("fallen")

    with pytest.raises(KeyError, match="fallen"):
        await finish(fall(), 10)


async def test_a_cancelled_caller_waits_for_the_end() -> None:
    """However often it is cancelled; then the cancellation goes on."""
    work = Work()
    task = asyncio.create_task(finish(work(), 10))
    await turn()
    for _ in range(3):
        task.cancel()
        await turn()
    assert (work.state, task.done()) == ("running", False)
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.state == "ended"


async def test_late_work_is_cancelled() -> None:
    """After the time that it has."""
    work = Work()
    with pytest.raises(TimeoutError, match=r"not finished after 0\.01 s"):
        await finish(work(), 0.01)
    await turn()
    assert work.state == "cancelled"


async def test_a_cancelled_caller_does_not_wait_for_late_work_either() -> None:
    """The limit holds, and the cancellation is what it hears."""
    work = Work()
    task = asyncio.create_task(finish(work(), 0.01))
    await turn(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turn()
    assert work.state == "cancelled"


async def test_work_that_resists_its_cancellation_is_left_behind() -> None:
    """The caller is told that it is late and goes on."""
    may_end = asyncio.Event()

    async def stubborn() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    with pytest.raises(TimeoutError):
        await finish(stubborn(), 0.01)
    may_end.set()
    await turn()


async def test_work_has_no_time_at_all() -> None:
    """It is cancelled, not run without a limit."""
    work = Work()
    with pytest.raises(TimeoutError):
        await finish(work(), 0)
