"""Connections that are kept between requests, and workers that close them at the wrong moment."""

import asyncio
from typing import Any

import pytest
from attrs import define, field

from plugins.dispatch.engine import Notice, Partner
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.errands import Errands
from plugins.dispatch.introductions import Introductions
from plugins.dispatch.transports.lean import connection
from plugins.metrics import ABORTS, child
from plugins.slots import SERVED
from tests.dispatch.scripted import Seen, answer_ok, die, scripted
from tests.dispatch.support import ONCE, ask, body_of, exchange_of, pools, running, single

pytestmark = pytest.mark.anyio


@define(eq=False)
class Forgetful:
    """Answers each connection once, and breaks it without a byte when it is used again."""

    used: set[int] = field(factory=set)
    breaks: bool = True

    async def __call__(self, seen: Seen) -> None:
        """Answer, or break."""
        if self.breaks and seen.connection in self.used:
            await seen.hang_up()
            return
        self.used.add(seen.connection)
        await seen.answer(b'{"ok":true}')


async def test_a_connection_is_used_again() -> None:
    """Requests one after the other share a connection."""
    async with scripted(answer_ok) as worker, running(single(worker.url)) as dispatch:
        for _ in range(3):
            await ask(dispatch, exchange_of(body_of()))
    assert len({seen.connection for seen in worker.seen}) == 1


async def test_a_stream_that_was_read_to_its_end_leaves_its_connection() -> None:
    """Only what was cut costs a new connection."""

    async def stream(seen: Seen) -> None:
        await seen.begin_stream(b"data: [DONE]\n\n")
        await seen.end_stream()

    async with scripted(stream) as worker, running(single(worker.url)) as dispatch:
        for _ in range(3):
            await ask(dispatch, exchange_of(body_of(stream=True)))
    assert len({seen.connection for seen in worker.seen}) == 1


async def test_a_worker_that_was_restarted_costs_no_request() -> None:
    """Its old connections are not used, whether or not their end was noticed."""
    async with scripted(answer_ok) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(body_of()))
        await worker.stop()
        await worker.start()
        assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_on_a_connection_that_breaks_at_once_is_sent_again(stream: bool, logged: list[Any]) -> None:
    """The worker had closed it; a new connection to the same worker serves the request."""
    async with scripted(Forgetful()) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(body_of()))
        exchange = exchange_of(body_of(stream=stream))
        got = await ask(dispatch, exchange)
        assert pools(dispatch)[0].workers[0].up is True
    assert exchange[SERVED].attempts == 2
    assert exchange[SERVED].workers == [worker.url]
    assert stream or got.json == {"ok": True}
    assert "connection.stale" in {line["event"] for line in logged}


async def test_a_request_is_sent_again_over_a_new_connection_only() -> None:
    """Other connections that were kept may be as dead as the first one."""
    script = Forgetful(breaks=False)
    async with scripted(script) as worker, running(single(worker.url)) as dispatch:
        await asyncio.gather(*(ask(dispatch, exchange_of(body_of())) for _ in range(5)))
        kept = {seen.connection for seen in worker.seen}
        script.used, script.breaks = set(kept), True
        exchange = exchange_of(body_of())
        assert (await ask(dispatch, exchange)).json == {"ok": True}
    assert exchange[SERVED].attempts == 2
    assert worker.seen[-1].connection not in kept


async def test_without_retries_no_request_is_sent_more_than_twice() -> None:
    """Once more for a kept connection, and never to another worker: whatever kills one may kill them all."""
    script = Forgetful()
    async with scripted(script) as first, scripted(script) as second:
        async with running(single(first.url, second.url), retry=ONCE) as dispatch:
            for _ in range(2):
                await ask(dispatch, exchange_of(body_of()))
            before = len(first.seen) + len(second.seen)
            first.script = second.script = die
            error = (await ask(dispatch, exchange_of(body_of()))).error
        assert error.status == 502
        assert len(first.seen) + len(second.seen) - before == 2


async def test_only_one_kept_connection_is_forgiven() -> None:
    """The second one that breaks counts as an attempt, as the worker may have died of the request."""

    async def vanish(seen: Seen) -> None:
        gone.refuse()
        await seen.hang_up()

    async with (
        scripted(answer_ok) as gone,
        scripted(Forgetful()) as there,
        scripted(answer_ok) as third,
        running(single(gone.url, there.url, third.url)) as dispatch,
    ):
        for _ in range(3):
            await ask(dispatch, exchange_of(body_of()))
        gone.script = vanish
        exchange = exchange_of(body_of())
        assert (await ask(dispatch, exchange)).json == {"ok": True}
        assert exchange[SERVED].workers == [gone.url, there.url, third.url]
        assert (len(gone.seen), len(there.seen), len(third.seen)) == (2, 2, 2)


async def test_a_connection_that_breaks_later_was_no_stale_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that died of its work did read the request; it is not sent again."""
    monkeypatch.setattr(connection, "STALE_SECONDS", 0.0)
    async with scripted(Forgetful()) as worker, running(single(worker.url), retry=ONCE) as dispatch:
        await ask(dispatch, exchange_of(body_of()))
        assert (await ask(dispatch, exchange_of(body_of()))).error.status == 502
    assert len(worker.seen) == 2


async def test_a_connection_that_breaks_inside_an_answers_head_was_no_stale_one() -> None:
    """The worker had begun to answer, so it had read the request."""

    async def begin(seen: Seen) -> None:
        if seen.body.endswith(b'"last":1}'):
            await seen.send(b"HTTP/1.1 200 OK\r\ncontent-type: appl")
            await seen.hang_up()
        else:
            await answer_ok(seen)

    async with scripted(begin) as worker, running(single(worker.url), retry=ONCE) as dispatch:
        await ask(dispatch, exchange_of(body_of()))
        assert (await ask(dispatch, exchange_of(body_of(last=1)))).error.status == 502
    assert len(worker.seen) == 2


async def test_an_idle_connection_is_not_kept_for_longer_than_configured() -> None:
    """Workers close idle connections too; the kernel is first."""
    async with scripted(answer_ok) as worker, running(single(worker.url), keep_alive_seconds=0.001) as dispatch:
        await ask(dispatch, exchange_of(body_of()))
        await worker.until(lambda: worker.open == 0)


async def test_what_a_worker_is_told_beside_answers_needs_no_kept_connection() -> None:
    """Nobody waits for it and nobody would send it again, so that it is not lost to one that its worker had closed."""
    async with scripted(Forgetful()) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(body_of()))
        (pool,), errands = pools(dispatch), Errands()
        told = child(ABORTS, "m", "generation", "told")
        before = told._value.get()
        errands.send(pool, pool.workers[0], Notice("/abort_request", b"{}"))
        await errands.finish()
        assert (worker.seen[-1].line, told._value.get() - before) == ("POST /abort_request HTTP/1.1", 1)


async def test_a_worker_is_asked_who_it_is_over_no_kept_connection() -> None:
    """A pair that fails for it would cost a retry."""

    class Curious(OpenAIEngine):
        def question(self, partner: Partner) -> str:
            return f"{partner.url}/server_info"

    async with scripted(Forgetful()) as worker, running(single(worker.url)) as dispatch:
        await ask(dispatch, exchange_of(body_of()))
        (pool,) = pools(dispatch)
        partner = await Introductions().partner(Curious(), pool, pool.workers[0])
        assert partner.told == {"ok": True}
