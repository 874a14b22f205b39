"""Races and cancellations: the one place where a request is interrupted, or outlives a cancellation."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from types import coroutine
from typing import Any, TypeAlias

from kernel.errors import ClientGone, KernelError

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

WATCH_DELAY_SECONDS = 0.05  # a request that ends sooner has no work worth stopping, and is spared a task


class Guard:
    """A block that `Interruptible.interrupt` can end; it raises the reason in place of the cancellation."""

    __slots__ = ("_cancelling", "_fired", "_owner", "_task")

    def __init__(self, owner: "Interruptible") -> None:
        self._owner, self._fired = owner, False

    def __enter__(self) -> None:
        owner = self._owner
        if owner.reason is not None:
            raise owner.reason
        task = asyncio.current_task(owner.loop)
        if task is None:
            raise RuntimeError("a guard needs a task")
        self._task, self._cancelling = task, task.cancelling()
        owner.guards.append(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._owner.guards.remove(self)  # not always the last: a plugin may call on in a task of its own
        # as in asyncio.timeout: a cancellation that came from elsewhere as well stays one
        if self._fired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._owner.reason or ClientGone("the request was interrupted") from None

    def fire(self) -> None:
        """Cancel the block; one that asks for it itself goes on to its next wait."""
        if asyncio.current_task() is self._task:
            self._owner.loop.call_soon(self._owner.fire)
        else:
            self._fired = self._task.cancel()


class Interruptible:
    """One request that may have to stop; no task races with its own: the latest guarded block is cancelled."""

    __slots__ = ("_gone", "_timer", "_watcher", "guards", "loop", "may_watch", "reason", "receive")

    def __init__(self, receive: Receive) -> None:
        self.loop, self.receive = asyncio.get_running_loop(), receive
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self.guards: list[Guard] = []
        self.may_watch = False
        self.reason: KernelError | None = None

    def interruptible(self) -> Guard:
        """A `with` block that an interruption ends by raising its reason; raises at once if there was one."""
        return Guard(self)

    def interrupt(self, reason: KernelError) -> None:
        """Stop the request for `reason`; the first reason stands."""
        if self.reason is None:
            self.reason = reason
            self.fire()

    def fire(self) -> None:
        """Cancel the guarded block that was entered last, if one is open."""
        if self.guards:
            self.guards[-1].fire()

    def watch(self) -> None:
        """From now on interrupt the request with `ClientGone` when its client hangs up."""
        if self._timer is None and self._watcher is None:
            self._timer = self.loop.call_later(WATCH_DELAY_SECONDS, self._begin_watch)

    async def client_gone(self) -> None:
        """Return when the client has hung up; for a task of its own, as the request's own is interrupted instead."""
        if not isinstance(self.reason, ClientGone):
            self._gone = self._gone or self.loop.create_future()
            self.watch()
            await asyncio.shield(self._gone)

    def settle(self) -> None:
        """End the watch; the request is over."""
        for pending in (self._timer, self._watcher, self._gone):
            if pending is not None:
                pending.cancel()
        self._watcher = None  # a cycle: its cancellation holds its frame, which holds the request

    def _begin_watch(self) -> None:
        self._timer = None
        if self.may_watch:
            self._watcher = self.loop.create_task(self._await_disconnect())
        else:  # the body is still being read: whoever reads it hears of a hang-up
            self.watch()

    async def _await_disconnect(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.interrupt(ClientGone("the client hung up"))
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)


def begin(work: Coroutine[Any, Any, bytes]) -> Awaitable[bytes] | bytes:
    """Run `work` up to where it has to wait: its result, or what to await for that."""
    try:
        return _go_on(work, work.send(None))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


@coroutine
def _go_on(work: Coroutine[Any, Any, bytes], waits: Any) -> Generator[Any, Any, bytes]:
    while True:
        try:
            try:
                yield waits
            except BaseException as error:  # also an end of the wait that `work` knows what to do about
                waits = work.throw(error)
            else:
                waits = work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def finish(work: Coroutine[Any, Any, None], seconds: float) -> None:
    """Run `work` to its end whatever cancels the caller meanwhile: its cancellation is raised when `work` has ended.

    Raises `TimeoutError` when `work` did not end within `seconds` and was cancelled.
    """
    loop = asyncio.get_running_loop()
    task, deadline, cancelled = loop.create_task(work), loop.time() + seconds, None
    while not task.done() and loop.time() < deadline:
        try:
            await asyncio.wait((task,), timeout=deadline - loop.time())
        except asyncio.CancelledError as error:
            cancelled = error
    late = not task.done() and task.cancel()
    if cancelled is not None:
        raise cancelled
    if late:
        raise TimeoutError(f"not finished after {seconds:g} s")
    task.result()
