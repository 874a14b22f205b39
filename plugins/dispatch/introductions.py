"""What context workers tell of themselves, where an engine has to know it before they can be one of a pair."""

from typing import Any, Final
from weakref import WeakKeyDictionary

import orjson
from attrs import define, evolve, field

from plugins.dispatch.answers import check_head
from plugins.dispatch.client import Call, Limits, MalformedFault, read_whole
from plugins.dispatch.engine import Asks, Partner
from plugins.dispatch.pool import Pool
from plugins.dispatch.worker import Worker

_LIMITS: Final = Limits(connect=5.0, total=10.0)
_ANSWER_LIMIT: Final = 4 * 1024 * 1024


@define(eq=False)
class Introductions:
    """Each worker is asked once, and again once it failed: one that was restarted has other names."""

    _told: "WeakKeyDictionary[Worker, Any]" = field(factory=WeakKeyDictionary, init=False)

    async def partner(self, engine: Asks, pool: Pool, worker: Worker) -> Partner:
        """What a pair has to know of a context worker.

        Raises:
            Rejection: it declined to tell; among them a `Fault`: it could not be asked, or made no sense.
        """
        partner = Partner(worker.url, worker.bootstrap_port)
        now = (worker.faults, worker.bootstrap_port)
        then, told = self._told.get(worker, (None, None))
        if then != now:
            told = await _ask(pool, engine.question(partner))
            self._told[worker] = now, told
        return evolve(partner, told=told)

    def forget(self, worker: Worker) -> None:
        """Ask again next time: something went wrong in a pair with this worker."""
        self._told.pop(worker, None)


async def _ask(pool: Pool, url: str) -> Any:
    headers = {"accept-encoding": "identity", **pool.headers}
    response = await pool.client.send(Call("GET", url, headers, b"", _LIMITS), fresh=True)
    try:
        await check_head(response, stream=False)
        return orjson.loads(await read_whole(response, _ANSWER_LIMIT))
    except orjson.JSONDecodeError as error:
        raise MalformedFault(f"GET {url}: {error}", "the context worker tells nothing of itself") from None
    finally:
        response.close()
