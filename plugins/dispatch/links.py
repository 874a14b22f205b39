"""The connections between context and generation workers that an engine wants to be made from outside."""

import asyncio
from collections.abc import Generator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import orjson
from attrs import define, field
from structlog.stdlib import get_logger

from kernel import Rejection
from plugins.dispatch.abilities import Connects, Step
from plugins.dispatch.answers import check_head
from plugins.dispatch.client import Call, Fault, Limits, MalformedFault, read_whole
from plugins.dispatch.engine import Handoff
from plugins.dispatch.handoffs import StaleHandoff
from plugins.dispatch.pool import Pool
from plugins.dispatch.worker import Role, Worker

_LIMITS: Final = Limits(connect=5.0, total=30.0)
_ANSWER_LIMIT: Final = 4 * 1024 * 1024

log = get_logger()


class LostHandoff(StaleHandoff):
    """A context worker failed before its handoff was sent to anybody: another one may do better."""

    answer = (502, "worker_unavailable", "two workers cannot be connected")


@define(eq=False)
class _Link:
    """`faults` are those that its workers had had when it was made; one more, and it is made anew."""

    lock: asyncio.Lock = field(factory=asyncio.Lock)
    faults: tuple[int, int] | None = None
    old: bool = False


@define(eq=False)
class Links:
    """Each is made once, when the first KV cache is to pass over it; requests that want it meanwhile wait."""

    engine: Connects
    pools: Mapping[Role, Pool]
    _known: "WeakKeyDictionary[Worker, WeakKeyDictionary[Worker, _Link]]" = field(factory=WeakKeyDictionary, init=False)

    async def ensure(self, handoff: Handoff, generation: Worker) -> None:
        """Have a worker connected to the one that made a handoff.

        Raises:
            LostHandoff: the context worker failed, and with it what it holds.
            Fault: the generation worker failed; a `ConnectFault`, it cannot be reached.
        """
        context = handoff.origin
        if context is None or not handoff.complete:
            return
        link = self._known.setdefault(context, WeakKeyDictionary()).setdefault(generation, _Link())
        if link.faults == (context.faults, generation.faults):
            return
        async with link.lock:
            faults = (context.faults, generation.faults)
            if link.faults == faults:
                return
            link.faults = None
            workers = {Role.CONTEXT: context, Role.GENERATION: generation}
            urls = (context.url, generation.url)
            if link.old:
                await self._end(self.engine.disconnect(*urls), workers)
            link.old = True
            await self._run(self.engine.connect(*urls), workers)
            link.faults = faults
            log.info("link.made", context=context.url, generation=generation.url)

    def inherit(self, before: "Links") -> None:
        """Go on with what an earlier version has connected; for connections of another kind, each is made anew."""
        self._known = before._known  # noqa: SLF001  # one class
        if self.engine != before.engine:
            for links in self._known.values():
                for link in links.values():
                    link.faults = None

    def forget(self, context: Worker, generation: Worker) -> None:
        """Make a connection anew when it is wanted: something went wrong over it."""
        links = self._known.get(context)
        if links is not None and generation in links:
            links[generation].faults = None

    async def _run(self, steps: Generator[Step, Any, None], workers: Mapping[Role, Worker]) -> None:
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = await self._call(step, workers[step.role])
        except StopIteration:
            pass
        finally:
            steps.close()

    async def _end(self, steps: Generator[Step, Any, None], workers: Mapping[Role, Worker]) -> None:
        for step in steps:
            try:
                await self._call(step, workers[step.role])
            except Rejection as error:
                log.info("link.end_failed", worker=workers[step.role].url, reason=str(error))

    async def _call(self, step: Step, worker: Worker) -> Any:
        pool = self.pools[step.role]
        try:
            return await _ask(pool, worker.url + step.path, step.body)
        except Fault as fault:
            log.warning("link.failed", worker=worker.url, path=step.path, reason=fault.detail)
            if step.role is Role.CONTEXT:
                if fault.worker_down:
                    pool.report(worker, fault)
                raise LostHandoff(fault.detail) from fault
            raise


async def _ask(pool: Pool, url: str, body: bytes) -> Any:
    headers = {"accept-encoding": "identity", **pool.headers}
    if body:
        headers["content-type"] = "application/json"
    response = await pool.client.send(Call("POST" if body else "GET", url, headers, body, _LIMITS), fresh=True)
    try:
        await check_head(response, stream=False)
        return orjson.loads(await read_whole(response, _ANSWER_LIMIT))
    except Fault:
        raise
    except (Rejection, orjson.JSONDecodeError) as error:
        # what a worker declines here is nothing that a client has asked for
        raise MalformedFault(f"{url}: {error}", "two workers cannot be connected") from None
    finally:
        response.close()
