"""Which workers take requests, and what makes that change."""

import asyncio
from typing import Any

import pytest

from plugins.dispatch.config import HealthConfig, ModelConfig
from plugins.dispatch.plugin import Dispatch
from plugins.metrics import WORKERS, WORKERS_UP, child
from tests.dispatch.scripted import Seen, answer_ill, answer_ok, die, hang, scripted
from tests.dispatch.support import ask, body_of, exchange_of, pools, relay, running, single, until

pytestmark = pytest.mark.anyio

QUICK = HealthConfig(interval_seconds=0.01)


def ups(dispatch: Dispatch) -> list[bool | None]:
    """Whether each worker takes requests."""
    return [worker.up for pool in pools(dispatch) for worker in pool.workers]


def events(logged: list[Any]) -> list[tuple[str, str]]:
    """What the log says of workers."""
    return [(line["event"], line["worker"]) for line in logged if line["event"].startswith("worker.")]


class Moods:
    """Answers probes well or ill as it is told, then well; notes the worker's state at each probe."""

    def __init__(self, *moods: bool) -> None:
        self.moods = list(moods)
        self.states: list[bool | None] = []
        self.dispatch: Dispatch | None = None

    async def __call__(self, seen: Seen) -> None:
        """Answer one probe."""
        if self.dispatch is not None:
            self.states += ups(self.dispatch)
        await (answer_ok if not self.moods or self.moods.pop(0) else answer_ill)(seen)


async def test_workers_are_known_when_a_start_is_over() -> None:
    """The first probes are sent at once, to all workers together."""
    async with (
        scripted(answer_ok) as well,
        scripted(answer_ok, answer_ill) as ill,
        running(single(well.url, ill.url)) as dispatch,
    ):
        assert ups(dispatch) == [True, False]


async def test_a_start_does_not_wait_for_a_worker_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known yet takes no requests, and joins when it answers."""

    async def slowly(seen: Seen) -> None:
        await go.wait()
        await answer_ok(seen)

    monkeypatch.setattr("plugins.dispatch.plugin.START_SECONDS", 0.05)
    go = asyncio.Event()
    async with scripted(answer_ok, slowly) as slow, running(single(slow.url)) as dispatch:
        assert ups(dispatch) == [None]
        assert dispatch.unready() == ["m: no generation worker is ready"]
        assert (await ask(dispatch, exchange_of(body_of()))).error.status == 503
        go.set()
        await pools(dispatch)[0].known()
        assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}
        assert dispatch.unready() == []


async def test_failed_probes_in_a_row_take_a_worker_out(logged: list[Any]) -> None:
    """One is forgiven; a good one takes the worker in again."""
    moods = Moods(True, False, True, False, False, True)
    async with scripted(answer_ok, moods) as worker, running(single(worker.url), health=QUICK) as dispatch:
        moods.dispatch = dispatch
        await worker.until(lambda: len(moods.states) >= 7)
    assert [event for event, _ in events(logged)] == ["worker.up", "worker.down", "worker.up"]
    assert moods.states.count(False) == 1


async def test_a_worker_that_was_never_well_is_out_after_one_probe(logged: list[Any]) -> None:
    """The threshold protects what works; the reason is logged once, with the address."""
    async with scripted(answer_ok, answer_ill) as worker, running(single(worker.url), health=QUICK):
        await worker.until(lambda: worker.probes >= 4)
    lines = [line for line in logged if line["event"] == "worker.down"]
    assert [(line["worker"], line["model"], line["role"]) for line in lines] == [(worker.url, "m", "generation")]
    assert lines[0]["reason"] == "/health answered with status 503"


async def test_a_probe_that_takes_too_long_is_a_failed_one(logged: list[Any]) -> None:
    """Its connection is closed, so that probes do not pile up in a worker that hangs."""
    health = HealthConfig(interval_seconds=60, timeout_seconds=0.05)
    async with scripted(answer_ok, hang) as worker, running(single(worker.url), health=health) as dispatch:
        assert ups(dispatch) == [False]
        await worker.until(lambda: worker.open == 0)
    assert events(logged) == [("worker.down", worker.url)]


async def test_a_probe_whose_answer_has_no_end_is_a_failed_one() -> None:
    """No more of it is read than a probe can need."""

    async def endless(seen: Seen) -> None:
        await seen.begin_stream()
        while not seen.reader.at_eof():
            await seen.send(b"400\r\n" + b"x" * 1024 + b"\r\n")

    async with scripted(answer_ok, endless) as worker, running(single(worker.url)) as dispatch:
        assert ups(dispatch) == [False]


async def test_a_worker_that_fails_in_traffic_is_out_until_a_good_probe() -> None:
    """It is probed at once, not at the next interval."""
    go = asyncio.Event()

    async def recover(seen: Seen) -> None:
        await go.wait()
        await answer_ok(seen)

    async with scripted(die) as worker, running(single(worker.url)) as dispatch:
        worker.probe = recover
        assert (await ask(dispatch, exchange_of(body_of()))).error.status == 502
        assert ups(dispatch) == [False]
        assert (await ask(dispatch, exchange_of(body_of()))).error.status == 503
        await worker.until(lambda: worker.probes == 2)
        worker.script = answer_ok
        go.set()
        await until(lambda: ups(dispatch) == [True])
        assert (await ask(dispatch, exchange_of(body_of()))).json == {"ok": True}


async def test_a_probe_from_before_a_fault_does_not_outweigh_it() -> None:
    """Its answer says nothing of the time after."""
    probing, go = asyncio.Event(), asyncio.Event()
    states = []

    async def early(seen: Seen) -> None:
        probing.set()
        await go.wait()
        await answer_ok(seen)

    async def late(seen: Seen) -> None:
        states.extend(ups(dispatch))
        await answer_ok(seen)

    async with scripted(die) as worker, running(single(worker.url), health=QUICK) as dispatch:
        worker.probe = early
        await probing.wait()
        await ask(dispatch, exchange_of(body_of()))
        worker.probe = late
        go.set()
        await worker.until(lambda: bool(states))
    assert states[0] is False


async def test_dispatch_is_ready_when_one_model_can_be_served() -> None:
    """A model needs a worker of each role; another model that is down does not take the whole kernel out."""
    async with scripted(answer_ok) as well, scripted(answer_ok, answer_ill) as ill:
        half = relay([well.url], [ill.url])
        async with running(half) as dispatch:
            assert dispatch.unready() == ["m: no generation worker is ready"]
        async with running() as dispatch:
            assert dispatch.unready() == ["no pools are configured"]
        other = ModelConfig("other", workers=(ill.url,))
        async with running(single(well.url), other) as dispatch:
            assert dispatch.unready() == []


async def test_gauges_count_workers_and_those_that_are_up() -> None:
    """They carry the model's name and the role, and go back when the pool ends."""
    model = "gauged"
    configured, up = child(WORKERS, model, "generation"), child(WORKERS_UP, model, "generation")
    async with (
        scripted(answer_ok) as well,
        scripted(answer_ok, answer_ill) as ill,
        running(ModelConfig(model, workers=(well.url, ill.url))),
    ):
        assert (configured._value.get(), up._value.get()) == (2, 1)
    assert (configured._value.get(), up._value.get()) == (0, 0)
