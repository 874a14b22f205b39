"""Resources: given back once, the latest first, whatever happens meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kernel import Resources, exchange
from tests.kernel.support import turn

pytestmark = pytest.mark.anyio


class Ledger(list[str]):
    """What was given back, in order."""

    def plain(self, name: str) -> Callable[[], object]:
        """A release that returns nothing."""
        return lambda: self.append(name)

    def awaited(self, name: str, gate: asyncio.Event | None = None) -> Callable[[], Awaitable[None]]:
        """A release that is awaited."""

        async def release() -> None:
            if gate is not None:
                await gate.wait()
            await asyncio.sleep(0)
            self.append(name)

        return release

    def failing(self, name: str, error: BaseException) -> Callable[[], object]:
        """A release that raises."""

        def release() -> None:
            self.append(name)
            raise error

        return release

    def failing_later(self, name: str, error: BaseException) -> Callable[[], Awaitable[None]]:
        """A release that raises when it is awaited."""

        async def release() -> None:
            await asyncio.sleep(0)
            self.append(name)
            raise error

        return release


async def test_the_latest_is_given_back_first() -> None:
    """Plain functions and awaited ones in one order."""
    resources, ledger = Resources(), Ledger()
    for push in (ledger.plain("1"), ledger.awaited("2"), ledger.plain("3"), ledger.awaited("4")):
        resources.push(push)
    await resources.close()
    assert ledger == ["4", "3", "2", "1"]


async def test_each_is_given_back_once() -> None:
    """Closing again finds nothing."""
    resources, ledger = Resources(), Ledger()
    resources.push(ledger.plain("1"))
    resources.push(ledger.awaited("2"))
    await resources.close()
    await resources.close()
    assert ledger == ["2", "1"]


async def test_nothing_held_is_nothing_to_do() -> None:
    """And costs no task."""
    await Resources().close()


async def test_what_is_pushed_during_the_close_is_given_back_too() -> None:
    """A release may hold something new."""
    resources, ledger = Resources(), Ledger()
    resources.push(lambda: resources.push(ledger.plain("new")))
    await resources.close()
    assert ledger == ["new"]


async def test_future_and_task_are_awaited() -> None:
    """Whatever awaitable a release returns."""
    resources, ledger = Resources(), Ledger()
    resources.push(lambda: asyncio.ensure_future(ledger.awaited("task")()))
    resources.push(ledger.plain("plain"))
    await resources.close()
    assert ledger == ["plain", "task"]


async def test_a_release_that_raises_does_not_stop_the_others(logged: list[Any]) -> None:
    """It is logged."""
    resources, ledger = Resources(), Ledger()
    resources.push(ledger.plain("first"))
    resources.push(ledger.failing_later("later", ValueError("x")))
    resources.push(ledger.awaited("between"))
    resources.push(ledger.failing("at once", ValueError("x")))
    await resources.close()
    assert ledger == ["at once", "between", "later", "first"]
    assert {line["event"] for line in logged} == {"resource.release_failed"}
    assert len(logged) == 2


async def test_a_release_that_ends_cancelled_does_not_stop_the_others() -> None:
    """As one does that cancels a task of its own and waits for its end; nobody cancelled the request."""
    resources, ledger = Resources(), Ledger()
    helper = asyncio.create_task(asyncio.Event().wait())

    def stop_helper() -> object:
        helper.cancel()
        return helper

    resources.push(ledger.plain("first"))
    resources.push(ledger.awaited("second"))
    resources.push(stop_helper)
    closing = asyncio.create_task(resources.close())
    await asyncio.wait((closing,))
    assert not closing.cancelled()
    assert ledger == ["second", "first"]


async def test_a_cancelled_exchange_gives_everything_back() -> None:
    """The cancellation goes on when that is done."""
    resources, ledger, gate = Resources(), Ledger(), asyncio.Event()
    resources.push(ledger.plain("1"))
    resources.push(ledger.awaited("2", gate))
    task = asyncio.create_task(resources.close())
    await turn()
    task.cancel()
    await turn()
    task.cancel()
    await turn()
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger == ["2", "1"]


async def test_a_release_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, logged: list[Any]) -> None:
    """After a limited time, and cancelled; those before it are given back nevertheless."""
    monkeypatch.setattr(exchange, "RELEASE_SECONDS", 0.01)
    resources, ledger = Resources(), Ledger()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ledger.append("given up")

    resources.push(ledger.plain("1"))
    resources.push(ledger.awaited("2"))
    resources.push(hang)
    resources.push(ledger.plain("4"))
    await resources.close()
    await turn()
    assert [entry for entry in ledger if entry != "given up"] == ["4", "2", "1"]
    assert "given up" in ledger
    assert [line["event"] for line in logged] == ["resource.release_failed"]


async def test_a_release_that_hangs_and_resists_its_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are given back once each."""
    monkeypatch.setattr(exchange, "RELEASE_SECONDS", 0.01)
    resources, ledger, may_end = Resources(), Ledger(), asyncio.Event()

    async def stubborn() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        ledger.append("stubborn")

    resources.push(ledger.plain("1"))
    resources.push(ledger.awaited("2"))
    resources.push(stubborn)
    await resources.close()
    assert ledger == ["2", "1"]
    may_end.set()
    await turn(20)
    assert ledger == ["2", "1", "stubborn"]
