"""Workers are made ready for use once they are well, and asking them something is no use of them."""

from typing import Any

import orjson
import pytest

from plugins.dispatch.config import ModelConfig
from plugins.dispatch.engine import Notice
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.errands import Errands
from plugins.dispatch.introductions import Introductions
from plugins.dispatch.policies.kv_events import KvEvents
from plugins.endpoints import COMPLETIONS
from tests.dispatch.membership import following, gauges, pool_of, ready, until_ready, worker_at
from tests.dispatch.scripted import ScriptedWorker, Seen, answer_ill, answer_ok, scripted
from tests.dispatch.support import ask, exchange_of, loads, running, until

pytestmark = pytest.mark.anyio

POLLED = KvEvents(source="polled")


async def tell(seen: Seen) -> None:
    """Answer as TensorRT-LLM's workers do."""
    if seen.line.startswith("GET /server_info "):
        await seen.answer(b'{"tokens_per_block": 32, "disaggregated_params": {"ctx_info_endpoint": ["tcp://a:1"]}}')
    elif seen.line.startswith("POST /kv_cache_events "):
        await seen.answer(b"[]")
    else:
        await answer_ok(seen)


def questions(worker: ScriptedWorker) -> list[str]:
    """What a worker was asked beside requests and probes."""
    lines = [seen.line.split()[1] for seen in worker.seen]
    return [path for path in lines if not path.startswith("/v1/")]


async def test_ready_workers_are_told_from_the_others_and_they_alone_are_made_ready() -> None:
    """One that is not well is asked nothing until it is."""
    async with scripted(tell) as well, scripted(tell, answer_ill) as ill:
        model = ModelConfig("m", workers=(well.url, ill.url), policy=POLLED)
        async with running(model) as dispatch:
            await well.until(lambda: questions(well) == ["/server_info"])
            assert [worker.up for worker in pool_of(dispatch).workers] == [True, False]
            assert (ready(dispatch), questions(ill)) == ([well.url], [])
            ill.probe = answer_ok
            pool_of(dispatch)._watch._attended[worker_at(dispatch, ill.url)].hurry.set()
            await ill.until(lambda: questions(ill) == ["/server_info"])
            assert ready(dispatch) == [well.url, ill.url]
            assert questions(well) == ["/server_info"]


async def test_a_worker_that_joins_and_is_not_well_is_not_used() -> None:
    """It is known, waits for its first good probe, and is made ready only then."""
    async with (
        scripted(tell) as well,
        scripted(tell, answer_ill) as ill,
        following(well.url, policy=POLLED) as (told, dispatch),
    ):
        told.name(well.url, ill.url)
        await until(lambda: worker_at(dispatch, ill.url).up is False)
        for _ in range(4):
            body = orjson.dumps({"model": "m", "prompt": list(range(64))})
            assert (await ask(dispatch, exchange_of(body, endpoint=COMPLETIONS))).json == {"ok": True}
        assert (ready(dispatch), gauges(), ill.seen) == ([well.url], (2, 1, 0), [])
        ill.probe = answer_ok
        pool_of(dispatch)._watch._attended[worker_at(dispatch, ill.url)].hurry.set()
        await until_ready(dispatch, [well.url, ill.url])


async def test_a_worker_whose_blocks_do_not_fit_takes_no_requests_though_it_is_well() -> None:
    """It was asked and cannot be used; the others serve."""

    async def odd(seen: Seen) -> None:
        await seen.answer(b'{"tokens_per_block": 48}')

    policy = KvEvents(source="polled", tokens_per_block=32)
    async with scripted(tell) as well, scripted(odd) as other, following(well.url, policy=policy) as (told, dispatch):
        told.name(well.url, other.url)
        await until(lambda: worker_at(dispatch, other.url).draining)
        assert (ready(dispatch), worker_at(dispatch, other.url).up) == ([well.url], True)


async def test_asking_and_telling_workers_reserves_nothing() -> None:
    """Neither the question who it is, nor a notice, nor a poll of its events counts as load or takes a turn."""
    reserved: list[Any] = []

    async def look(seen: Seen) -> None:
        reserved.append((loads(dispatch), gauges()[2]))
        await tell(seen)

    async with scripted(look) as worker, scripted(look) as other:
        model = ModelConfig("m", workers=(worker.url, other.url), policy=POLLED)
        async with running(model) as dispatch:
            pool, errands = pool_of(dispatch), Errands()
            one, two = pool.workers
            introductions, engine = Introductions(), TrtllmEngine(schedule="generation_first")
            for port, asked in ((None, 2), (None, 2), (7, 3)):
                one.bootstrap_port = port  # whoever has another one is asked anew
                partner = await introductions.partner(engine, pool, one)
                assert (partner.told["tokens_per_block"], questions(worker).count("/server_info")) == (32, asked)
            errands.send(pool, two, Notice("/abort_request", b"{}"))
            await errands.finish()
            policy: Any = pool._policy
            policy._state.source.finished(one)
            await worker.until(lambda: "/kv_cache_events" in questions(worker))
    assert {tuple(map(str, look)) for look in reserved} == {("[0, 0]", "0.0")}
    assert {"/server_info", "/kv_cache_events", "/abort_request"} <= {*questions(worker), *questions(other)}
