"""The watch for a client that hangs up: when it begins, what it does, that it ends."""

import asyncio
import gc
import weakref
from collections.abc import MutableMapping
from typing import Any

import pytest

from kernel import ClientGone, race
from kernel.race import Interruptible
from tests.kernel.support import turn, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def watch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to watch without delay."""
    monkeypatch.setattr(race, "WATCH_DELAY_SECONDS", 0)


class Line:
    """A client's messages, and how many were asked for."""

    def __init__(self) -> None:
        self.messages = asyncio.Queue[MutableMapping[str, Any]]()
        self.asked = 0

    async def receive(self) -> MutableMapping[str, Any]:
        """The next message."""
        self.asked += 1
        return await self.messages.get()

    def hang_up(self) -> None:
        """Leave."""
        self.messages.put_nowait({"type": "http.disconnect"})


async def watch_and_wait(request: Interruptible) -> None:
    """Wait for ever under a watch."""
    with request.interruptible():
        request.watch()
        await asyncio.Event().wait()


async def test_a_hang_up_interrupts_the_request() -> None:
    """With ClientGone."""
    line = Line()
    request = Interruptible(line.receive)
    request.may_watch = True
    task = asyncio.create_task(watch_and_wait(request))
    await until(lambda: line.asked)
    line.hang_up()
    with pytest.raises(ClientGone):
        await task
    request.settle()


async def test_the_watch_begins_after_the_body() -> None:
    """Until then the client's messages belong to whoever reads the body."""
    line = Line()
    request = Interruptible(line.receive)
    line.hang_up()
    task = asyncio.create_task(watch_and_wait(request))
    await turn(50)
    assert line.asked == 0
    request.may_watch = True
    with pytest.raises(ClientGone):
        await task
    request.settle()


async def test_what_comes_behind_a_body_is_passed_over() -> None:
    """Only the hang-up counts."""
    line = Line()
    request = Interruptible(line.receive)
    request.may_watch = True
    line.messages.put_nowait({"type": "http.request", "body": b"late", "more_body": False})
    task = asyncio.create_task(watch_and_wait(request))
    await until(lambda: line.asked == 2)
    assert not task.done()
    line.hang_up()
    with pytest.raises(ClientGone):
        await task
    request.settle()


async def test_watching_twice_is_watching_once() -> None:
    """One task asks for the client's messages, however many plugins watch."""
    line = Line()
    request = Interruptible(line.receive)
    request.may_watch = True
    request.watch()
    request.watch()
    await until(lambda: line.asked)
    request.watch()
    await turn(20)
    assert line.asked == 1
    request.settle()


async def test_a_request_that_ends_soon_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task is made for it."""
    monkeypatch.setattr(race, "WATCH_DELAY_SECONDS", 60)
    line = Line()
    request = Interruptible(line.receive)
    request.may_watch = True
    before = asyncio.all_tasks()
    request.watch()
    await turn(20)
    assert asyncio.all_tasks() == before
    request.settle()


async def test_a_settled_request_asks_for_nothing_more() -> None:
    """Its watcher is cancelled, and one that had not begun does not begin."""
    line = Line()
    request = Interruptible(line.receive)
    request.may_watch = True
    request.watch()
    await until(lambda: line.asked)
    before = len(asyncio.all_tasks())
    request.settle()
    await turn(5)
    assert len(asyncio.all_tasks()) == before - 1
    other = Interruptible(line.receive)
    other.watch()
    other.settle()
    await turn(20)
    assert line.asked == 1


async def test_a_settled_request_needs_no_collector() -> None:
    """All of it is gone with the last reference to it."""
    line = Line()
    gone = weakref.ref(line)
    request = Interruptible(line.receive)
    request.may_watch = True
    request.watch()
    await turn(20)
    assert line.asked
    gc.disable()
    try:
        request.settle()
        await turn(5)
        del request, line
        assert gone() is None
    finally:
        gc.enable()


async def test_client_gone_returns_when_the_client_has_hung_up() -> None:
    """For work that waits beside the request; later calls return at once."""
    line = Line()
    request = Interruptible(line.receive)
    request.may_watch = True
    waiting = [asyncio.create_task(request.client_gone()) for _ in range(3)]
    await turn(20)
    assert not any(task.done() for task in waiting)
    line.hang_up()
    await asyncio.gather(*waiting)
    await request.client_gone()
    request.settle()


async def test_giving_up_on_client_gone_does_not_disturb_others() -> None:
    """Whoever waits may be cancelled."""
    line = Line()
    request = Interruptible(line.receive)
    request.may_watch = True
    first, second = (asyncio.create_task(request.client_gone()) for _ in range(2))
    await turn(20)
    first.cancel()
    await turn()
    line.hang_up()
    await second
    assert first.cancelled()
    request.settle()


async def test_work_that_still_waits_for_a_hang_up_ends_with_the_request() -> None:
    """Nothing is left waiting for ever."""
    request = Interruptible(Line().receive)
    task = asyncio.create_task(request.client_gone())
    await turn(20)
    request.settle()
    await asyncio.wait((task,))
    assert task.cancelled()
