"""Listens to workers that send their KV-cache events over ZeroMQ to one address, which is bound here."""

import asyncio
from collections.abc import Callable
from functools import partial

from attrs import define, field

from plugins.dispatch.policies.kv_index import Holding
from plugins.dispatch.policies.kv_stream import KvStream, read_number
from plugins.dispatch.policies.kv_wire import Ledger, read_batch
from plugins.dispatch.policies.zmq_addresses import address_of
from plugins.dispatch.policies.zmq_sockets import Sockets
from plugins.dispatch.policies.zmq_source import keep
from plugins.dispatch.policy import Site
from plugins.dispatch.worker import Worker


@define(eq=False)
class BoundZmqSource:
    """Tells workers apart by the topics of their messages: `kv@HOST:PORT@MODEL`, of the worker's own address.

    Messages of nobody who is known are passed over.
    """

    bind: str
    replay_endpoint: str | None
    site: Site
    holding: Callable[[Worker], Holding]
    _sockets: Sockets = field(init=False)
    _streams: dict[tuple[Worker, int], KvStream] = field(factory=dict, init=False)
    _task: asyncio.Task[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sockets = Sockets()
        self._task = asyncio.create_task(keep(partial(self._sockets.collect, self.bind, self._sort)))

    def turned(self, worker: Worker) -> None:
        """Hear that a worker may have begun anew."""
        for (known, _), stream in self._streams.items():
            if known is worker:
                stream.suspect()

    def left(self, worker: Worker) -> None:
        """Forget a worker."""
        for key in [key for key in self._streams if key[0] is worker]:
            del self._streams[key]

    def finished(self, worker: Worker) -> None:
        """Nothing: workers speak for themselves."""

    async def stop(self) -> None:
        """Listen no longer."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._sockets.close()

    async def _sort(self, frames: list[bytes]) -> None:
        """Give a message to the stream of its worker and rank."""
        try:
            topic, number, payload = frames
            host = topic.decode().removeprefix("kv@").partition("@")[0]
            place, batch = read_number(number), read_batch(payload)
        except ValueError:  # the number of what cannot be read is missed when the next one comes
            return
        worker = self.site.roster.find(f"http://{host}") or self.site.roster.find(f"https://{host}")
        if worker is None or place < 0:
            return
        stream = self._streams.get((worker, batch.rank))
        if stream is None:
            replay = None
            if self.replay_endpoint is not None:
                replay = partial(self._sockets.replay, address_of(self.replay_endpoint, worker, batch.rank))
            stream = self._streams[worker, batch.rank] = KvStream(worker.url, Ledger(self.holding(worker)), replay)
        await stream.receive(place, batch)
