"""Asks TensorRT-LLM's workers for their KV-cache events after each request that they served."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define, field
from structlog.stdlib import get_logger

from plugins.dispatch.client import Call, Fault, Limits, read_whole
from plugins.dispatch.policies.kv_index import Holding
from plugins.dispatch.policies.kv_wire import WireError
from plugins.dispatch.policies.trtllm_events import PolledLedger, judge, read_info
from plugins.dispatch.policy import Site
from plugins.dispatch.worker import Worker

INFO_PATH: Final = "/server_info"
EVENTS_PATH: Final = "/kv_cache_events"

RETRY_SECONDS: Final = 10.0
"""How long until a worker that was refused is asked again."""

_BODY_LIMIT: Final = 64 * 1024 * 1024
_LIMITS: Final = Limits(connect=5.0, total=30.0)

log = get_logger()


@define(eq=False)
class _Server:
    """One worker: whether its events are of use, whether it is drained, whether to ask once more, and what failed."""

    ledger: PolledLedger
    followed: bool = False
    refused: bool = False
    again: bool = False
    silent: bool = False
    handshake: asyncio.Task[None] | None = None
    poll: asyncio.Task[None] | None = None


@define(eq=False)
class PolledSource:
    """Asks each worker that comes up how it names its blocks, and after its requests what became of them.

    At most one question is on its way to a worker: a request that ends meanwhile has one more follow. A worker
    whose blocks cannot be what `tokens_per_block` says is drained until it says something else. `pass_on` hears which
    blocks were stored and removed: a worker tells each event once, whoever asks.
    """

    tokens_per_block: int | None
    site: Site
    holding: Callable[[Worker], Holding]
    pass_on: Callable[[Worker, Sequence[int], Sequence[int]], None]
    _servers: dict[Worker, _Server] = field(factory=dict, init=False)
    _ending: set[asyncio.Task[None]] = field(factory=set, init=False)

    def turned(self, worker: Worker) -> None:
        """Ask a worker that has come up about its blocks; it may be another one than before."""
        server = self._servers.get(worker)
        if server is None:
            server = self._servers[worker] = _Server(PolledLedger(self.holding(worker)))
        if server.handshake is None or server.handshake.done():
            server.handshake = asyncio.create_task(self._shake_hands(worker, server))

    def left(self, worker: Worker) -> None:
        """Ask a worker no longer."""
        server = self._servers.pop(worker, None)
        for task in () if server is None else (server.handshake, server.poll):
            if task is not None:
                task.cancel()
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    def finished(self, worker: Worker) -> None:
        """Ask a worker what became of its blocks, now or once the question that is on its way is answered."""
        server = self._servers.get(worker)
        if server is None or not server.followed:
            return
        if server.poll is not None and not server.poll.done():
            server.again = True
        else:
            server.poll = asyncio.create_task(self._poll(worker, server))

    async def stop(self) -> None:
        """Ask nobody any longer."""
        for worker in tuple(self._servers):
            self.left(worker)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _shake_hands(self, worker: Worker, server: _Server) -> None:
        while True:
            try:
                info = read_info(await self._ask("GET", worker, INFO_PATH))
            except (Fault, WireError) as error:
                if server.refused:  # nobody hears it come up again while it drains
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                log.warning("kv_events.no_info", worker=worker.url, reason=_reason(error))
                server.followed = True  # older workers do not have it, and may well be as is assumed here
                return
            verdict, reason = judge(info, self.tokens_per_block)
            server.followed = verdict == "follow"
            server.ledger.holding.resize(self.tokens_per_block or info.tokens_per_block)
            if verdict == "refuse":
                log.error("worker.refused", worker=worker.url, reason=reason)
                server.refused = True
                self.site.roster.drain(worker)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if reason:
                log.warning("kv_events.worker", worker=worker.url, verdict=verdict, reason=reason)
            if server.refused:
                server.refused = False
                self.site.roster.drain(worker, draining=False)
            return

    async def _poll(self, worker: Worker, server: _Server) -> None:
        while True:
            server.again = False
            bad = server.ledger.bad
            try:
                server.ledger.enter(await self._ask("POST", worker, EVENTS_PATH))
                server.silent = False
                self.pass_on(worker, server.ledger.stored, server.ledger.removed)
            except (Fault, WireError) as error:
                if not server.silent:
                    log.warning("kv_events.no_events", worker=worker.url, reason=_reason(error))
                server.silent = True
            if server.ledger.bad != bad:
                log.warning("kv_events.garbage", worker=worker.url, events=server.ledger.bad - bad)
            if not server.again:
                return

    async def _ask(self, method: str, worker: Worker, path: str) -> bytes:
        call = Call(method, worker.url + path, self.site.headers, b"", _LIMITS)
        response = await self.site.client.send(call, fresh=path == INFO_PATH)  # it may have been restarted
        try:
            body = await read_whole(response, _BODY_LIMIT)
        finally:
            response.close()
        if response.status != 200:
            raise WireError(f"{path} answered with status {response.status}")
        return body


def _reason(error: Fault | WireError) -> str:
    return error.detail if isinstance(error, Fault) else str(error)
