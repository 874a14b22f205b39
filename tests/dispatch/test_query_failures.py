"""What becomes of counts, embeddings and ranks whose worker fails, or declines."""

from collections import Counter
from typing import Any

import orjson
import pytest

from plugins.dispatch.retry import RetryConfig
from plugins.endpoints import COUNT_TOKENS, EMBEDDINGS
from plugins.metrics import RETRIES, child
from tests.dispatch.engines.apis import EVERYTHING
from tests.dispatch.engines.pairs import WORDS
from tests.dispatch.retries.workers import declines
from tests.dispatch.scripted import Seen, answer_ok, die, scripted
from tests.dispatch.support import ONCE, Answer, ask, exchange_of, loads, pools, running, single

pytestmark = pytest.mark.anyio


async def count(dispatch: Any) -> Answer:
    """Ask how many tokens there are."""
    data = {"model": "m", "messages": [{"role": "user", "content": WORDS}]}
    return await ask(dispatch, exchange_of(orjson.dumps(data), endpoint=COUNT_TOKENS))


@pytest.mark.parametrize("kind", ["die_after_headers", "garbage", "wrong_content_type"])
async def test_an_answer_that_is_none_is_a_fault(kind: str) -> None:
    """It is not passed on, and the worker is not asked again."""

    async def answer(seen: Seen) -> None:
        match kind:
            case "garbage":
                await seen.answer(b"<html>")
            case "wrong_content_type":
                await seen.answer(b"data: {}\n\n", "200 OK", "content-type: text/event-stream")
            case _:
                await seen.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
                await seen.hang_up()

    async with scripted(answer) as worker, running(single(worker.url, engine=EVERYTHING)) as dispatch:
        assert (await count(dispatch)).error.status == 502
        assert len(worker.seen) == 1


async def test_a_worker_that_cannot_be_reached_is_not_the_end() -> None:
    """The next one is asked; without any, the client is told when to come back."""
    async with scripted(answer_ok) as good, scripted(answer_ok) as gone:
        config = single(gone.url, good.url, engine=EVERYTHING)
        async with running(config) as dispatch:
            await gone.stop()
            for _ in range(3):
                assert (await count(dispatch)).json == {"ok": True}
            await good.stop()
            error = (await count(dispatch)).error
            assert (error.status, error.code) == (503, "no_worker_ready")
            assert dict(error.headers)["retry-after"]
            assert loads(dispatch) == [0, 0]
            await gone.start()
            await good.start()


async def test_a_kept_connection_that_broke_is_made_anew() -> None:
    """The question changes nothing, so that it may be asked twice."""
    turns = Counter[str]()

    async def answer(seen: Seen) -> None:
        turns["all"] += 1
        await (die(seen) if turns["all"] == 2 else answer_ok(seen))

    async with scripted(answer) as worker, running(single(worker.url, engine=EVERYTHING)) as dispatch:
        assert (await count(dispatch)).json == {"ok": True}
        assert (await count(dispatch)).json == {"ok": True}
        assert turns["all"] == 3


async def test_without_retries_one_worker_is_asked() -> None:
    """As with requests that generate; with them, one more is counted."""
    retried = child(RETRIES, "m", "generation", "connect")
    async with scripted(answer_ok) as good, scripted(answer_ok) as gone:
        for config, expected in ((ONCE, 503), (RetryConfig(attempts=1), None)):
            before = retried._value.get()
            async with running(single(gone.url, good.url, engine=EVERYTHING), retry=config) as dispatch:
                await gone.stop()
                rejection = (await count(dispatch)).rejection
                assert (rejection and rejection.status) == expected
                assert retried._value.get() - before == config.attempts
                await gone.start()


async def test_a_kept_connection_that_broke_is_not_made_anew_if_that_is_off() -> None:
    """Exactly one attempt is one."""
    turns = Counter[str]()

    async def answer(seen: Seen) -> None:
        turns["all"] += 1
        await (die(seen) if turns["all"] == 2 else answer_ok(seen))

    async with scripted(answer) as worker:
        config = single(worker.url, engine=EVERYTHING)
        async with running(config, retry=RetryConfig(resend_on_stale=False)) as dispatch:
            assert (await count(dispatch)).json == {"ok": True}
            assert (await count(dispatch)).error.status == 502
            assert turns["all"] == 2


async def test_a_worker_that_lacks_what_is_asked_for_is_not_ejected() -> None:
    """A 501 says what it was not made for; what it was made for it goes on to do."""
    async with (
        scripted(declines(501)) as lacking,
        scripted(answer_ok) as able,
        running(single(lacking.url, able.url)) as dispatch,
    ):
        for _ in range(20):
            await ask(dispatch, exchange_of(b'{"model":"m","input":"a"}', endpoint=EMBEDDINGS))
        assert len(lacking.seen) == len(able.seen) == 10
        (pool,) = pools(dispatch)
        assert len(pool.ready) == 2
