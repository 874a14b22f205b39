"""Interruptions: a guarded block ends with the reason, at whatever moment it comes."""

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


async def test_a_block_that_is_not_interrupted_is_a_plain_block() -> None:
    """It returns, and raises what it raises."""
    owner = request()
    with owner.interruptible():
        await asyncio.sleep(0)
    with pytest.raises(KeyError), owner.interruptible():
        raise KeyError
    assert not owner.guards


async def test_an_interruption_inside_ends_the_block_with_the_reason() -> None:
    """The task goes on: nothing of the cancellation is left in it."""
    owner = request()

    async def work() -> str:
        with pytest.raises(Rejection) as caught:
            await wait_under(owner)
        assert caught.value is LATER
        assert caught.value.__cause__ is None
        await asyncio.sleep(0)
        return "went on"

    task = asyncio.create_task(work())
    await turn()
    owner.interrupt(LATER)
    assert await task == "went on"
    assert task.cancelling() == 0


async def test_an_interruption_before_the_block_ends_it_at_once() -> None:
    """Nothing of the block runs."""
    owner = request()
    owner.interrupt(LATER)
    entered = False
    with pytest.raises(Rejection, match="shutting down"), owner.interruptible():
        entered = True
    assert not entered


async def test_an_interruption_between_blocks_waits_for_the_next() -> None:
    """Work outside a guard is not cut."""
    owner = request()

    async def work() -> None:
        with owner.interruptible():
            await asyncio.sleep(0)
        await turn(5)
        owner.interrupt(LATER)
        await turn(5)
        await wait_under(owner)

    with pytest.raises(Rejection):
        await asyncio.create_task(work())


async def test_the_innermost_block_ends_first() -> None:
    """And the reason passes through those around it."""
    owner, seen = request(), list[str]()

    async def work() -> None:
        with owner.interruptible():
            try:
                await wait_under(owner)
            except Rejection:
                seen.append("inner ended")
                raise

    task = asyncio.create_task(work())
    await turn()
    owner.interrupt(LATER)
    with pytest.raises(Rejection):
        await task
    assert seen == ["inner ended"]
    assert not owner.guards


async def test_the_outer_block_is_the_one_that_ends_after_the_inner_one() -> None:
    """A block that has ended by itself gives its place back."""
    owner = request()

    async def work() -> None:
        with owner.interruptible():
            with owner.interruptible():
                await asyncio.sleep(0)
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await turn()
    owner.interrupt(LATER)
    await turn()
    assert task.done()
    assert task.exception() is LATER


async def test_blocks_of_two_tasks_end_in_any_order() -> None:
    """A block that was left open in another task takes the place of none that was entered later, nor gives it one."""
    owner, may_end, alone = request(), asyncio.Event(), asyncio.Event()

    async def first() -> None:
        with owner.interruptible():
            await may_end.wait()

    async def second() -> None:
        with owner.interruptible():
            other = asyncio.create_task(first())
            await turn()
        with owner.interruptible():
            may_end.set()
            await other
            alone.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(second())
    await alone.wait()
    owner.interrupt(LATER)
    await asyncio.wait((task,))
    assert not task.cancelled()
    assert task.exception() is LATER
    assert not owner.guards


async def test_the_outer_block_may_answer_the_reason_of_the_inner_one() -> None:
    """It is interrupted once; a new guard ends at once, plain waiting does not."""
    owner = request()

    async def work() -> str:
        with owner.interruptible():
            with pytest.raises(Rejection):
                await wait_under(owner)
            await turn(3)
            with pytest.raises(Rejection):
                await wait_under(owner)
            return "answered"

    task = asyncio.create_task(work())
    await turn()
    owner.interrupt(LATER)
    assert await task == "answered"


async def test_the_first_reason_stands() -> None:
    """Whoever comes second changes nothing."""
    owner = request()
    task = asyncio.create_task(wait_under(owner))
    await turn()
    owner.interrupt(GONE)
    owner.interrupt(LATER)
    with pytest.raises(ClientGone):
        await task
    assert owner.reason is GONE


async def test_interrupting_what_is_over_does_nothing() -> None:
    """No guard is open, so nothing is cancelled."""
    owner = request()
    with owner.interruptible():
        await asyncio.sleep(0)
    owner.interrupt(LATER)
    await turn()
