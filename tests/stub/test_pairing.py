"""The meeting of two halves, step by step."""

import asyncio

import pytest

from plugins.dispatch.embedded.stub.pairing import Pairing, TakenError

pytestmark = pytest.mark.anyio


async def begin(pairing: Pairing, key: int) -> "asyncio.Task[object]":
    """Join a pair, as far as one gets without its other half."""
    task = asyncio.ensure_future(pairing.join(key))
    await asyncio.sleep(0)
    return task


async def leave(task: "asyncio.Task[object]") -> None:
    """End a join before anything was given."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_has_left_has_not_joined() -> None:
    """A half that came and went is not there any more, and another one may come in its place."""
    pairing = Pairing(lambda: None)
    with pairing.hold(5, (1, 2)) as pair:
        first = await begin(pairing, 5)
        assert pair.joined.is_set()
        await leave(first)
        assert not pair.joined.is_set()
        second = await begin(pairing, 5)
        assert pair.give("blocks")
        assert await second == "blocks"
    assert pairing.waiting == 0


async def test_each_half_is_there_once() -> None:
    """A second half of either kind is declined; the first ones do not notice."""
    pairing = Pairing(lambda: None)
    task = await begin(pairing, 5)
    with pytest.raises(TakenError):
        await pairing.join(5)
    with pairing.hold(5, (1,)) as pair:
        with pytest.raises(TakenError), pairing.hold(5, (1,)):
            pass
        pair.give("blocks")
    assert await task == "blocks"
    assert pairing.waiting == 0


async def test_a_key_is_free_after_its_gift() -> None:
    """Once something was given the key belongs to nobody, even before the other half has taken it."""
    pairing = Pairing(lambda: None)
    task = await begin(pairing, 5)
    with pairing.hold(5, (1,)) as pair:
        pair.give("old")
    with pairing.hold(5, (2,)) as pair:
        assert not pair.joined.is_set()
        assert not pair.give("new"), "nobody is there to take it"
    assert await task == "old"
    assert pairing.waiting == 0


async def test_a_holder_that_leaves_leaves_the_other_waiting() -> None:
    """Without a gift the other half stays, and the next holder of the key has it."""
    pairing = Pairing(lambda: None)
    task = await begin(pairing, 5)
    with pairing.hold(5, (1,)):
        pass
    assert (task.done(), pairing.waiting) == (False, 1)
    with pairing.hold(5, (2,)) as pair:
        assert pair.joined.is_set()
        pair.give("blocks")
    assert await task == "blocks"
