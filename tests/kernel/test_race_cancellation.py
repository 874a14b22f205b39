"""Interruptions and cancellations that meet: which of them the task hears, and that none is left over."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from kernel import ClientGone, Rejection
from kernel.race import Interruptible
from tests.kernel.support import turn

pytestmark = pytest.mark.anyio


LATER = Rejection(503, "shutting down")


GONE = ClientGone("gone")


async def silence() -> MutableMapping[str, Any]:
    """A client that sends nothing."""
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


def request() -> Interruptible:
    """A request whose client is silent."""
    return Interruptible(silence)


async def wait_under(owner: Interruptible) -> None:
    """Wait for ever under a guard."""
    with owner.interruptible():
        await asyncio.Event().wait()


async def test_a_result_that_came_first_does_not_hide_the_interruption() -> None:
    """Both in one turn of the loop: the block ends with the reason, and the task is not cancelled later."""
    owner = request()
    result = asyncio.get_running_loop().create_future()

    async def work() -> str:
        with pytest.raises(Rejection), owner.interruptible():
            await result
        await turn(3)
        return "went on"

    task = asyncio.create_task(work())
    await turn()
    result.set_result("came")
    owner.interrupt(LATER)
    assert await task == "went on"


async def test_a_block_that_swallows_the_cancellation_ends_as_it_likes() -> None:
    """The task is whole afterwards, and the next guard ends at once."""
    owner = request()

    async def work() -> str:
        with owner.interruptible():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await turn(3)
        await turn(3)
        with pytest.raises(Rejection):
            await wait_under(owner)
        return "went on"

    task = asyncio.create_task(work())
    await turn()
    owner.interrupt(LATER)
    assert await task == "went on"
    assert task.cancelling() == 0


async def test_another_error_from_the_cleanup_is_not_hidden() -> None:
    """What a block raises while it ends is what comes out."""
    owner = request()

    async def work() -> None:
        with owner.interruptible():
            try:
                await asyncio.Event().wait()
            finally:
                raise KeyError("cleanup")

    task = asyncio.create_task(work())
    await turn()
    owner.interrupt(LATER)
    with pytest.raises(KeyError, match="cleanup"):
        await task
    assert task.cancelling() == 0


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    """Without an interruption, and also when both come together, in either order."""
    for steps in (("cancel",), ("cancel", "interrupt"), ("interrupt", "cancel")):
        owner = request()
        task = asyncio.create_task(wait_under(owner))
        await turn()
        for step in steps:
            if step == "cancel":
                task.cancel()
            else:
                owner.interrupt(LATER)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()


async def test_a_request_may_interrupt_itself() -> None:
    """Its next wait under the guard ends."""
    owner = request()

    async def work() -> None:
        with owner.interruptible():
            owner.interrupt(LATER)
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await turn()
    assert task.done()
    assert task.exception() is LATER


async def test_a_request_that_interrupts_itself_at_last_is_not_cancelled_later() -> None:
    """Where the block ends without another wait, nothing of the cancellation goes on outside it."""
    owner = request()

    async def work() -> None:
        with owner.interruptible():
            owner.interrupt(LATER)
        await turn(3)

    task = asyncio.create_task(work())
    await asyncio.wait((task,))
    assert not task.cancelled()
    assert task.cancelling() == 0
