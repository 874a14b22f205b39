"""What probes and traffic together say of a worker, and what many probes cost."""

import asyncio
from typing import Any

import pytest

from plugins.dispatch.config import HealthConfig
from plugins.dispatch.health import AT_ONCE, PROBES_A_SECOND
from plugins.dispatch.plugin import Dispatch
from tests.dispatch.membership import pool_of, ready, worker_at
from tests.dispatch.scripted import Seen, answer_ill, answer_ok, hang, scripted
from tests.dispatch.support import Answer, ask, body_of, exchange_of, running, single, until

pytestmark = pytest.mark.anyio

IMPATIENT = HealthConfig(interval_seconds=0.01, timeout_seconds=0.05, failures=1)


class Busy:
    """A worker that sends a bit of a stream whenever it is probed, and answers probes as `mood` does, if at all."""

    def __init__(self) -> None:
        self.mood: Any = answer_ok
        self.probed = asyncio.Event()
        self.delivers = True
        self.over = asyncio.Event()
        self.probes = 0

    async def probe(self, seen: Seen) -> None:
        """Take a probe."""
        self.probes += 1
        if self.delivers:
            self.probed.set()
        await self.mood(seen)

    async def stream(self, seen: Seen) -> None:
        """Answer a request."""
        await seen.begin_stream(b"data: {}\n\n")
        while not self.over.is_set():
            await self.probed.wait()
            self.probed.clear()
            await seen.send(b"a\r\ndata: {}\n\n\r\n")
        await seen.end_stream()

    def begin(self, dispatch: Dispatch) -> "asyncio.Task[Answer]":
        """Send it a request."""
        return asyncio.create_task(ask(dispatch, exchange_of(body_of(stream=True))))

    async def finish(self, task: "asyncio.Task[Answer]") -> None:
        """Let that request end."""
        self.over.set()
        self.probed.set()
        await task


def downs(logged: list[Any]) -> list[str]:
    """Why workers went down."""
    return [line["reason"] for line in logged if line["event"] == "worker.down"]


async def test_a_worker_that_goes_on_answering_is_alive_though_it_is_late_with_probes(logged: list[Any]) -> None:
    """A long prompt holds up its answer to a probe; when nothing comes any more, it is out, and then back."""
    busy = Busy()
    async with scripted(busy.stream, busy.probe) as worker, running(single(worker.url), health=IMPATIENT) as dispatch:
        task = busy.begin(dispatch)
        await worker.until(lambda: len(worker.seen) == 1)
        busy.mood, began = hang, busy.probes
        await worker.until(lambda: busy.probes >= began + 6)
        assert (downs(logged), ready(dispatch)) == ([], [worker.url])
        busy.delivers = False
        await until(lambda: ready(dispatch) == [])
        busy.mood = answer_ok
        await until(lambda: ready(dispatch) == [worker.url])
        await busy.finish(task)
    assert len(downs(logged)) == 1


async def test_a_worker_that_says_it_is_ill_is_out_though_it_goes_on_answering(logged: list[Any]) -> None:
    """It has said so itself, as one that is about to stop does; what it has goes on."""
    busy = Busy()
    async with scripted(busy.stream, busy.probe) as worker, running(single(worker.url), health=IMPATIENT) as dispatch:
        task = busy.begin(dispatch)
        await worker.until(lambda: len(worker.seen) == 1)
        busy.mood = answer_ill
        await until(lambda: ready(dispatch) == [])
        assert downs(logged) == ["/health answered with status 503"]
        assert not task.done()
        await busy.finish(task)


async def test_bytes_alone_take_no_worker_in_that_is_out() -> None:
    """Its old streams may go on although it cannot be reached."""
    busy = Busy()
    async with scripted(busy.stream, busy.probe) as worker, running(single(worker.url), health=IMPATIENT) as dispatch:
        task = busy.begin(dispatch)
        await worker.until(lambda: len(worker.seen) == 1)
        busy.mood = answer_ill
        await until(lambda: ready(dispatch) == [])
        busy.mood, began = hang, busy.probes
        await worker.until(lambda: busy.probes >= began + 4)
        assert worker_at(dispatch, worker.url).up is False
        await busy.finish(task)


async def test_an_answer_as_a_whole_is_a_sign_of_life_too() -> None:
    """As context workers give it."""
    async with scripted(answer_ok) as worker, running(single(worker.url)) as dispatch:
        one = worker_at(dispatch, worker.url)
        assert one.heard == 0.0
        await ask(dispatch, exchange_of(body_of()))
        assert one.heard > 0.0


async def test_probes_of_many_workers_do_not_run_all_at_once() -> None:
    """Each of them takes a connection of its own."""
    at_once: list[int] = []

    async def count(seen: Seen) -> None:
        at_once.append(worker.open)
        await answer_ok(seen)

    async with scripted(answer_ok, count) as worker:
        urls = [f"{worker.url}/{number}" for number in range(200)]
        async with running(single(*urls)) as dispatch:
            await pool_of(dispatch).known()
            assert len(ready(dispatch)) == worker.probes == 200
    assert max(at_once) <= AT_ONCE + 8  # those whose end is not seen yet


async def test_so_many_workers_are_probed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their number, a pool has no more than so many probes in a second."""
    monkeypatch.setattr("plugins.dispatch.health.PROBES_A_SECOND", 4)
    async with scripted(answer_ok) as worker:
        for count, seconds in ((2, 0.5), (10, 2.5)):
            async with running(single(*(f"{worker.url}/{number}" for number in range(count))), health=IMPATIENT) as it:
                assert pool_of(it)._watch.interval_seconds == seconds
    assert PROBES_A_SECOND == 200


async def test_workers_that_are_gone_do_not_keep_others_from_being_probed() -> None:
    """A probe of one that does not answer takes as long as it may."""
    moods = [answer_ill]

    async def probe(seen: Seen) -> None:
        await moods[-1](seen)

    health = HealthConfig(interval_seconds=0.01, timeout_seconds=60, failures=1)
    async with scripted(answer_ok, probe) as dead, scripted(answer_ok) as well:
        urls = [f"{dead.url}/{number}" for number in range(AT_ONCE + 8)]
        async with running(single(*urls, well.url), health=health) as dispatch:
            await pool_of(dispatch).known()
            moods.append(hang)
            await dead.until(lambda: dead.open >= AT_ONCE)
            probes = well.probes
            await well.until(lambda: well.probes >= probes + 3)
            assert ready(dispatch) == [well.url]
