"""Workers that say they have too much to do: they get less, and are not called faulty."""

import pytest

from plugins.dispatch.breaker import BreakerConfig
from plugins.dispatch.circuit import State, Verdict
from plugins.dispatch.client import ConnectFault, MalformedFault, StaleFault, TimeoutFault, TransportFault
from plugins.dispatch.rejections import NoWorker
from plugins.dispatch.retry import relief_of, verdict_of
from plugins.slots import WorkerRejection
from tests.dispatch.policies.support import Clock, roster_of
from tests.dispatch.retries.workers import declines
from tests.dispatch.scripted import answer_ok, scripted
from tests.dispatch.support import ask, body_of, exchange_of, pools, running, single

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", [429, 503])
async def test_a_worker_under_pressure_gets_half_and_stays_in(status: int, transport: str) -> None:
    """However often it says so; the request goes to another one."""
    async with scripted(declines(status)) as busy, scripted(answer_ok) as idle:
        model = single(busy.url, idle.url, transport=transport)
        async with running(model, breaker=BreakerConfig(failures=1)) as dispatch:
            for _ in range(6):
                assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
            first, second = pools(dispatch)[0].workers
            assert (first.circuit.state, first.circuit.streak) == (State.CLOSED, 0)
            assert (first.share, second.share) == (0.5, 1.0)


async def test_pressure_lasts_for_as_long_as_the_worker_says() -> None:
    """From then on its share grows as that of a new worker."""
    clock = Clock()
    roster = roster_of(2, slow_start=10.0, clock=clock)
    roster.ease(roster.at(0), 20.0)
    shares = []
    for _ in range(27):
        clock.now += 1
        roster.grow()
        shares.append(roster.at(0).share)
    assert shares == [0.5] * 20 + [0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("0", 0.0), ("99999", 30.0), ("-1", 0.0), ("soon", 0.0), ("1.5", 0.0), ("²", 0.0), ("", 0.0)],
)
def test_a_worker_is_believed_within_bounds(text: str, seconds: float) -> None:
    """Whatever it sends in `Retry-After`, which may be no number."""
    assert relief_of(WorkerRejection(429, "no", None, (("retry-after", text),))) == seconds


def test_what_a_failed_attempt_says_of_its_worker() -> None:
    """Only what is the worker's own fault counts against it."""
    failures = [ConnectFault("x"), TransportFault("x"), TimeoutFault("x"), MalformedFault("x")]
    failures += [WorkerRejection(status, "x") for status in (500, 502, 504)]  # type: ignore[misc]
    assert {verdict_of(error) for error in failures} == {Verdict.FAILURE}
    assert {verdict_of(WorkerRejection(status, "x")) for status in (429, 503)} == {Verdict.PRESSURE}
    declined = [WorkerRejection(status, "x") for status in (400, 404, 408, 413, 422)]
    assert {verdict_of(error) for error in (*declined, StaleFault("x"), NoWorker("", 1))} == {Verdict.NEUTRAL}
