"""Listens to workers that send their KV-cache events over ZeroMQ, each at an address of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.dispatch.client import Call, Fault, Limits, read_whole
from plugins.dispatch.policies.kv_index import Holding
from plugins.dispatch.policies.kv_stream import KvStream
from plugins.dispatch.policies.kv_wire import Ledger, WireError
from plugins.dispatch.policies.zmq_addresses import Addresses, address_of, read_addresses
from plugins.dispatch.policies.zmq_sockets import Sockets
from plugins.dispatch.policy import Site
from plugins.dispatch.worker import Worker

SOURCES_PATH: Final = "/kv_event_sources"
"""Where vLLM says which addresses its events have."""

RETRY_SECONDS: Final = 10.0
"""How long until a worker that did not say is asked again."""

REOPEN_SECONDS: Final = 1.0
"""How long until an address is listened to again."""

REPLAYS_AT_ONCE: Final = 16

_BODY_LIMIT: Final = 1024 * 1024
_LIMITS: Final = Limits(connect=5.0, total=5.0)

log = get_logger()


async def keep(listen: Callable[[], Awaitable[None]]) -> None:
    """Listen for ever, whatever happens to an address."""
    last = ""
    while True:
        try:
            await listen()
        except OSError as error:
            if str(error) != last:
                last = str(error)
                log.warning("kv_events.unreachable", reason=last)
        await asyncio.sleep(REOPEN_SECONDS)


@define(eq=False)
class ZmqSource:
    """Follows each worker that is or was up: to the address of `endpoint`, else to where it says itself."""

    endpoint: str | None
    replay_endpoint: str | None
    ranks: int
    site: Site
    holding: Callable[[Worker], Holding]
    _sockets: Sockets = field(init=False)
    _followers: dict[Worker, "_Follower"] = field(factory=dict, init=False)
    _ending: set[asyncio.Task[None]] = field(factory=set, init=False)
    _replays: asyncio.Semaphore = field(init=False, factory=lambda: asyncio.Semaphore(REPLAYS_AT_ONCE))

    def __attrs_post_init__(self) -> None:
        self._sockets = Sockets()

    def turned(self, worker: Worker) -> None:
        """Follow a worker; if it was followed before, it may have begun anew meanwhile."""
        follower = self._followers.get(worker)
        if follower is None:
            self._followers[worker] = _Follower(worker, self)
        else:
            follower.hurry.set()

    def left(self, worker: Worker) -> None:
        """Follow a worker no longer."""
        follower = self._followers.pop(worker, None)
        if follower is not None:
            for task in follower.tasks():
                self.cancel(task)

    def finished(self, worker: Worker) -> None:
        """Nothing: workers speak for themselves."""

    async def stop(self) -> None:
        """Follow nobody any longer."""
        for worker in tuple(self._followers):
            self.left(worker)
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._sockets.close()

    def cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a task, which is still waited for in the end."""
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def find(self, worker: Worker) -> tuple[Addresses, ...]:
        """The addresses of a worker's ranks.

        Raises:
            Fault: the worker cannot be asked.
            WireError: it does not say.
        """
        if self.endpoint is not None:
            replay = self.replay_endpoint
            return tuple(
                Addresses(
                    address_of(self.endpoint, worker, rank),
                    None if replay is None else address_of(replay, worker, rank),
                )
                for rank in range(self.ranks)
            )
        call = Call("GET", worker.url + SOURCES_PATH, self.site.headers, b"", _LIMITS)
        response = await self.site.client.send(call)
        try:
            body = await read_whole(response, _BODY_LIMIT)
        finally:
            response.close()
        if response.status != 200:
            raise WireError(f"{SOURCES_PATH} answered with status {response.status}")
        return read_addresses(body, worker)

    async def follow(self, stream: KvStream, live: str) -> None:
        """Listen to one rank of a worker, for ever."""
        await keep(partial(self._sockets.listen, live, stream.take, partial(self._begin, stream)))

    def stream(self, worker: Worker, replay: str | None) -> KvStream:
        """What is heard of one rank of a worker."""
        replays = None if replay is None else partial(self._sockets.replay, replay)
        return KvStream(worker.url, Ledger(self.holding(worker)), replays)

    async def _begin(self, stream: KvStream) -> None:
        async with self._replays:
            await stream.begin()


@define(eq=False)
class _Follower:
    """Follows one worker. `hurry` is set when the worker has come up again."""

    worker: Worker
    source: ZmqSource
    hurry: asyncio.Event = field(factory=asyncio.Event, init=False)
    _streams: dict[Addresses, tuple[KvStream, asyncio.Task[None]]] = field(factory=dict, init=False)
    _task: asyncio.Task[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._task = asyncio.create_task(self._run())

    def tasks(self) -> list[asyncio.Task[None]]:
        """All that run for the worker."""
        return [self._task, *(task for _, task in self._streams.values())]

    async def _run(self) -> None:
        while True:
            self.hurry.clear()
            try:
                self._tune(await self.source.find(self.worker))
            except (Fault, WireError) as error:
                reason = error.detail if isinstance(error, Fault) else str(error)
                log.warning("kv_events.no_address", worker=self.worker.url, reason=reason)
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await self.hurry.wait()
            else:
                await self.hurry.wait()

    def _tune(self, found: tuple[Addresses, ...]) -> None:
        """Listen to these addresses and no others."""
        for gone in self._streams.keys() - set(found):
            stream, task = self._streams.pop(gone)
            self.source.cancel(task)
            stream.ledger.forget()
        for addresses in found:
            if addresses in self._streams:
                self._streams[addresses][0].suspect()
            else:
                stream = self.source.stream(self.worker, addresses.replay)
                self._streams[addresses] = stream, asyncio.create_task(self.source.follow(stream, addresses.live))
