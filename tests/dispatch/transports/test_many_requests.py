"""Thousands of requests, faults and cancellations at random: each has one outcome, and nothing is left."""

import asyncio
import gc
import random
from collections import Counter

import pytest

from plugins.dispatch.client import Client, Fault, Limits, StaleFault
from tests.dispatch.transports.counters import sockets
from tests.dispatch.transports.exchange import CHUNKED, OK, call, fetch, framed, sized, turns
from tests.dispatch.transports.peer import Peer, worker

pytestmark = pytest.mark.anyio

REQUESTS = 10_000
AT_ONCE = 100


class Moody:
    """Answers each request with the number in it, or fails in one of the ways that there are."""

    def __init__(self) -> None:
        self.random = random.Random(1)

    async def __call__(self, peer: Peer) -> None:
        """Serve a connection for as long as the moods allow."""
        goes_on = True
        while goes_on:
            number = (await peer.request()).partition(b"\r\n\r\n")[2]
            answer = sized(number) if self.random.random() < 0.5 else OK + CHUNKED + framed(number[:1], number[1:])
            place = self.random.randrange(len(answer))
            goes_on = await self._answer(peer, answer[:place], answer[place:])

    async def _answer(self, peer: Peer, first: bytes, second: bytes) -> bool:
        mood = self.random.randrange(80)
        moods: dict[int, tuple[tuple[bytes, ...], bool]] = {
            0: ((), False),
            1: ((first,), False),
            2: ((b"HTTP/1.1 abc\r\n\r\n",), True),
            3: ((OK + CHUNKED + b"xyz\r\n",), True),
            4: ((first + second + b"garbage",), True),
            5: ((first + second,), False),
            6: ((), True),
            7: ((first,), True),
            8: ((first, second), True),
        }
        parts, goes_on = moods.get(mood, ((first + second,), True))
        await peer.send(*parts)
        if mood in (0, 1) and self.random.random() < 0.5:
            peer.reset()
        if mood in (6, 7):
            await peer.gone()
        return goes_on


async def attempt(client: Client, url: str, number: int, chance: random.Random, outcomes: Counter[str]) -> None:
    """One request, that may be cancelled on its way; an answer must be the one to this request."""
    body = b"%d" % (number + 10)
    task = asyncio.ensure_future(fetch(client, call(url, body=body, limits=Limits(10.0, read=1.0, total=10.0))))
    if chance.random() < 0.1:
        await turns(chance.randrange(20))
        task.cancel()
    try:
        got = await task
    except asyncio.CancelledError:
        outcomes["cancelled"] += 1
        return
    if got.fault is None:
        assert got.body == body
        outcomes["answered"] += 1
    else:
        assert body.startswith(got.body)
        outcomes[type(got.fault).__name__] += 1


@pytest.mark.slow
async def test_ten_thousand_requests_leave_nothing(client: Client, transport: str) -> None:
    """No connection, no file, no task, and no answer that was another request's."""
    chance, outcomes = random.Random(2), Counter[str]()
    numbers = iter(range(REQUESTS))
    before = sockets()
    tasks = len(asyncio.all_tasks())

    async def ask(url: str) -> None:
        for number in numbers:
            await attempt(client, url, number, chance, outcomes)

    async with worker(Moody()) as server:
        await asyncio.gather(*(ask(server.url) for _ in range(AT_ONCE)))
        await client.close()
        await server.until_left()
    await turns(5)
    gc.collect()
    assert sum(outcomes.values()) == REQUESTS
    assert outcomes["answered"] > REQUESTS / 2
    assert {"cancelled", "TransportFault", "MalformedFault", "TimeoutFault", StaleFault.__name__} <= set(outcomes)
    assert issubclass(StaleFault, Fault)
    assert len(asyncio.all_tasks()) == tasks
    assert sockets() <= before
