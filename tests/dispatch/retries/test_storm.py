"""Many requests at once against workers that fail in every way: nothing is left when they are over."""

import asyncio
from random import Random

import pytest
from attrs import define, field

from kernel import ClientGone, Exchange
from plugins.dispatch.breaker import BreakerConfig
from plugins.dispatch.plugin import Dispatch
from plugins.dispatch.retry import RetryConfig
from plugins.metrics import BREAKERS_OPEN, GENERATION, RESERVATIONS, child
from tests.dispatch.counters import Counters
from tests.dispatch.retries.workers import declines, stream
from tests.dispatch.scripted import Seen, answer_ok, die, hang, scripted
from tests.dispatch.support import ask, body_of, exchange_of, loads, pools, running, single

pytestmark = pytest.mark.anyio

REQUESTS = 300
SCRIPTS = [declines(500), declines(503), declines(429), declines(400), die, hang]


@define(eq=False)
class Storm:
    """Workers that answer well half of the time, or in any other way; clients leave those that hang."""

    random: Random = field(factory=lambda: Random(7))
    exchanges: dict[str, Exchange] = field(factory=dict)

    async def __call__(self, seen: Seen) -> None:
        """Answer one request."""
        well = stream if b'"stream":true' in seen.body else answer_ok
        script = well if self.random.random() < 0.5 else self.random.choice(SCRIPTS)
        if script is hang:
            self.exchanges[seen.header["x-request-id"]].interrupt(ClientGone())
        await script(seen)

    async def send(self, dispatch: Dispatch, number: int) -> str:
        """Send one request."""
        exchange = exchange_of(body_of(stream=number % 2 == 0))
        self.exchanges[exchange.id] = exchange
        try:
            answer = await ask(dispatch, exchange)
        except ClientGone:
            return "left"
        return "failed" if answer.rejection else "answered"


async def test_nothing_is_left_of_requests_that_failed_in_every_way(transport: str) -> None:
    """Each leg ended once, no load and no breaker is held, and the workers have no connection left."""
    legs = Counters(GENERATION)
    reservations, breakers = child(RESERVATIONS, "m", "generation"), child(BREAKERS_OPEN, "m", "generation")
    before, tasks = (reservations._value.get(), breakers._value.get()), len(asyncio.all_tasks())
    storm = Storm()
    async with scripted(storm) as a, scripted(storm) as b, scripted(storm) as c, scripted(storm) as d:
        workers = (a, b, c, d)
        model = single(*(worker.url for worker in workers), transport=transport)
        settings = {
            "retry": RetryConfig(pause_seconds=0.01),
            "breaker": BreakerConfig(failures=2, open_seconds=0.05, max_open_seconds=0.1),
        }
        async with running(model, **settings) as dispatch:
            ended: list[str] = []
            for start in range(0, REQUESTS, 50):
                ended += await asyncio.gather(*(storm.send(dispatch, number) for number in range(start, start + 50)))
                assert loads(dispatch) == [0, 0, 0, 0]
            assert set(ended) == {"answered", "failed", "left"}
            assert all(worker.work == 0 for worker in pools(dispatch)[0].workers)
        for worker in workers:
            await worker.until(lambda worker=worker: worker.open == 0)  # type: ignore[misc]
    changes = legs.changes()
    assert changes["total"] == changes["completed"] == REQUESTS
    assert changes["retry"] > 0
    assert (reservations._value.get(), breakers._value.get()) == before
    assert len(asyncio.all_tasks()) == tasks
