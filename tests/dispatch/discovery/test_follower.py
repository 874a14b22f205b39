"""What a discovery may say and do wrong, and that a pool outlives it."""

from typing import Any

import pytest

from plugins.dispatch.follower import WORKERS_LIMIT
from plugins.dispatch.worker_config import WorkerConfig
from plugins.metrics import DISCOVERIES, child
from tests.dispatch.membership import Told, following, found, gauges, pool_of, ready, until_ready
from tests.dispatch.scripted import answer_ok, scripted
from tests.dispatch.support import running, until

pytestmark = pytest.mark.anyio


def refused(logged: list[Any]) -> list[list[str]]:
    """The problems of each refusal."""
    return [line["problems"] for line in logged if line["event"] == "workers.refused"]


@pytest.mark.parametrize(
    ("workers", "problem"),
    [
        ((), "there must be at least one worker"),
        (("http://a:1", "http://A:1/"), "the worker http://a:1 is named twice"),
        (("a:1",), "a worker's address is http://host:port or https://host:port, got 'a:1'"),
        (tuple(f"http://a:{port + 1}" for port in range(WORKERS_LIMIT + 1)), "there are more than 10000 workers"),
    ],
)
async def test_what_cannot_be_workers_is_refused(workers: tuple[str, ...], problem: str, logged: list[Any]) -> None:
    """Those that were known stay."""
    async with scripted(answer_ok) as worker, following(worker.url) as (told, dispatch):
        told.name(*workers)
        assert ready(dispatch) == [worker.url]
    assert refused(logged) == [[problem]]


async def test_the_same_list_again_is_no_change(logged: list[Any]) -> None:
    """In whatever way it is written."""
    counter = child(DISCOVERIES, "m", "generation", "accepted")
    async with scripted(answer_ok) as worker, following(worker.url) as (told, dispatch):
        before = counter._value.get()
        told.name(worker.url.upper() + "/")
        told.name(WorkerConfig(worker.url))
        assert (ready(dispatch), worker.probes, counter._value.get()) == ([worker.url], 1, before)
    assert [line["event"] for line in logged].count("workers.changed") == 1


async def test_many_problems_are_not_all_logged(logged: list[Any]) -> None:
    """The first ones tell enough."""
    async with scripted(answer_ok) as worker, following(worker.url) as (told, _):
        told.audiences[0].complain([f"problem {number}" for number in range(50)])
    ((*problems, last),) = refused(logged)
    assert (len(problems), last) == (20, "and 30 more")


async def test_a_discovery_that_fails_is_followed_again(logged: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same failure is told once, however often; what was known stays, and what comes later counts."""
    monkeypatch.setattr("plugins.dispatch.follower.RETRY_SECONDS", 0.001)
    told = Told(fault=RuntimeError("the store is gone"))
    async with scripted(answer_ok) as worker, running(found(told)) as dispatch:
        await until(lambda: told.faults > 3)
        assert ready(dispatch) == []
        told.fault = None
        told.name(worker.url)
        await until_ready(dispatch, [worker.url])
        assert pool_of(dispatch).workers[0].up
    assert refused(logged) == [["RuntimeError: the store is gone"]]
    assert gauges() == (0, 0, 0)


async def test_a_pool_that_ends_ends_its_discovery() -> None:
    """Also one that is waiting after a failure."""
    told, failing = Told(), Told(fault=OSError("no"))
    async with running(found(told), found(failing, "other")) as dispatch:
        await until(lambda: len(told.audiences) == 1)
        assert dispatch.unready() == ["m: no generation worker is ready", "other: no generation worker is ready"]
    assert told.audiences == []
