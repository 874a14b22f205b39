"""What the client is told when retries do not help, or are not to be had."""

import pytest

from plugins.dispatch.retry import RetryConfig
from plugins.metrics import BUDGET_EXHAUSTED, child
from tests.dispatch.retries.workers import declines
from tests.dispatch.scripted import answer_ok, die, scripted
from tests.dispatch.support import ONCE, ask, body_of, exchange_of, running, single

pytestmark = pytest.mark.anyio

QUICK = RetryConfig(pause_seconds=0.001)


async def test_the_last_answer_of_a_worker_is_the_clients(transport: str) -> None:
    """With its status, its words and its `Retry-After`, and not one made up here."""
    one, two = declines(500, "first"), declines(429, "second", "retry-after: 7")
    async with (
        scripted(one) as first,
        scripted(two) as second,
        running(single(first.url, second.url, transport=transport)) as dispatch,
    ):
        error = (await ask(dispatch, exchange_of(body_of()))).error
    assert (error.status, error.message, error.headers) == (429, "second", (("retry-after", "7"),))


@pytest.mark.parametrize("second", ["refuses", "dies"])
async def test_an_answer_outweighs_a_worker_that_gave_none(second: str, transport: str) -> None:
    """What the first worker said tells the client more than that the second one was gone."""
    async with scripted(declines(503, "loading", "retry-after: 9")) as first, scripted(die) as gone:
        async with running(single(first.url, gone.url, transport=transport), retry=QUICK) as dispatch:
            if second == "refuses":
                await gone.stop()
            error = (await ask(dispatch, exchange_of(body_of()))).error
            assert (error.status, error.message, error.headers) == (503, "loading", (("retry-after", "9"),))
        if second == "refuses":
            await gone.start()


async def test_without_budget_the_first_answer_is_the_clients(transport: str) -> None:
    """An overload is not made worse; a connection that was never made costs nothing and is tried elsewhere."""
    none = RetryConfig(budget_share=0.0, budget_floor=0.0)
    exhausted = child(BUDGET_EXHAUSTED, "m", "generation")
    before = exhausted._value.get()
    async with scripted(declines(500)) as first, scripted(answer_ok) as second:
        async with running(single(first.url, second.url, transport=transport), retry=none) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of()))).error.status == 500
            assert (len(second.seen), exhausted._value.get() - before) == (0, 1)
            await ask(dispatch, exchange_of(body_of()))
            await first.stop()
            assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
        await first.start()


async def test_a_storm_of_failures_gets_the_budgets_share_of_retries(transport: str) -> None:
    """Forty requests fail, and ten of them are tried again."""
    config = RetryConfig(attempts=1, budget_share=0.25, budget_floor=0.0)
    async with scripted(declines(500)) as first, scripted(declines(500)) as second:
        async with running(single(first.url, second.url, transport=transport), retry=config) as dispatch:
            for _ in range(40):
                await ask(dispatch, exchange_of(body_of()))
        assert len(first.seen) + len(second.seen) == 50


async def test_retries_can_be_switched_off(transport: str) -> None:
    """Also those of a connection that was not made."""
    async with scripted(declines(500)) as first, scripted(answer_ok) as second:
        async with running(single(first.url, second.url, transport=transport), retry=ONCE) as dispatch:
            assert (await ask(dispatch, exchange_of(body_of()))).error.status == 500
            await ask(dispatch, exchange_of(body_of()))
            await first.stop()
            assert (await ask(dispatch, exchange_of(body_of()))).error.status == 503
            assert len(second.seen) == 1
        await first.start()
