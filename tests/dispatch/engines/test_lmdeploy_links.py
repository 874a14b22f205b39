"""LMDeploy's workers are connected from outside, each pair once, before a cache passes between them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import orjson
import pytest
from attrs import evolve

from kernel import ClientGone
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.config import HealthConfig, ModelConfig, RoleConfig
from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.dispatch.engines.lmdeploy import LmdeployEngine
from plugins.endpoints import CHAT_COMPLETIONS
from tests.dispatch.engines.pairs import CHAT, Pair, aggregated, pair_of, texts_of
from tests.dispatch.support import ask, exchange_of, pools, running, until

pytestmark = pytest.mark.anyio

ENGINE = LmdeployEngine()
LINK = ["engine_info", "p2p_initialize", "p2p_connect"]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A context and a generation worker that do not know each other yet."""
    async with pair_of(ENGINE, settings={"health": HealthConfig(interval_seconds=0.05)}) as pair:
        yield pair


def calls_of(stub: Stub) -> list[str]:
    """What a worker was asked or told beside its work, but for probes."""
    paths = [received.path for received in stub.state().last_requests if not received.is_work]
    return [path.removeprefix("/distserve/") for path in paths if path.startswith("/distserve/p2p") or "info" in path]


async def test_two_workers_are_connected_once(pair: Pair) -> None:
    """Before the first cache passes between them; requests that come together wait for the same connection."""
    answers = await asyncio.gather(*(pair.ask(CHAT) for _ in range(5)))
    assert all(answer.rejection is None for answer in answers)
    await pair.ask(CHAT)
    assert [calls_of(stub) for stub in pair.stubs] == [LINK, LINK]
    assert pair.context.state().handoffs.released == 0
    await pair.settled()


async def test_each_pair_is_connected_by_itself() -> None:
    """With two workers of each role there are four connections, each made once."""
    async with (
        run_stub("lmdeploy", role="context", model="m") as one,
        run_stub("lmdeploy", role="context", model="m") as two,
        run_stub("lmdeploy", role="generation", model="m") as three,
        run_stub("lmdeploy", role="generation", model="m") as four,
    ):
        config = ModelConfig(
            "m",
            engine=ENGINE,
            context=RoleConfig((one.url, two.url)),
            generation=RoleConfig((three.url, four.url)),
        )
        async with running(config) as dispatch:
            for _ in range(6):
                answer = await ask(dispatch, exchange_of(orjson.dumps(CHAT)))
                assert answer.rejection is None
            for stub in (one, two, three, four):
                assert len(calls_of(stub)) % len(LINK) == 0
                assert 1 <= len(calls_of(stub)) // len(LINK) <= 2
                assert stub.state().violations == {}


@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_restarted_worker_is_connected_anew(pair: Pair, role: str) -> None:
    """The other side is told first that the old connection is gone, so that nothing is opened twice."""
    expected = texts_of((await aggregated("lmdeploy", CHAT, CHAT_COMPLETIONS)).body)
    assert texts_of((await pair.ask(CHAT)).body) == expected
    stub: Stub = getattr(pair, role)
    await stub.restart()
    answers = [await pair.ask(CHAT) for _ in range(2)]
    assert texts_of(answers[1].body) == expected
    other = pair.generation if role == "context" else pair.context
    assert "p2p_drop_connect" in calls_of(other)
    await pair.dispatch.stop()
    assert other.state().held_blocks == 0
    assert "link_made_twice" not in other.state().violations


@pytest.mark.parametrize(("kind", "more"), [("RoCE", []), ("IB", ["p2p_drop_connect", *LINK])])
async def test_a_reload_knows_who_is_connected(pair: Pair, kind: Literal["RoCE", "IB"], more: list[str]) -> None:
    """The workers are connected still, and no second time; for a connection of another kind, the old one ends first."""
    await pair.ask(CHAT)
    after = evolve(pair.dispatch, pools=(evolve(pair.dispatch.pools[0], engine=LmdeployEngine(link_type=kind)),))
    after.succeed(pair.dispatch)
    await after.start()
    assert (await ask(after, exchange_of(orjson.dumps(CHAT)))).rejection is None
    assert [calls_of(stub) for stub in pair.stubs] == [[*LINK, *more]] * 2
    assert [stub.state().violations for stub in pair.stubs] == [{}, {}]
    await after.stop()


@pytest.mark.parametrize("role", ["context", "generation"])
@pytest.mark.parametrize("path", LINK)
@pytest.mark.parametrize("kind", ["status", "garbage", "die_before_headers", "die_after_headers"])
async def test_workers_that_cannot_be_connected_are_a_fault(pair: Pair, role: str, path: str, kind: str) -> None:
    """A 502 without an address, or a 503 once it is taken out; the cache is given up, and the next request works."""
    stub: Stub = getattr(pair, role)
    stub.add_fault(kind, path=f"/distserve/{path}", times=-1)
    answer = await pair.ask(CHAT)
    assert answer.error.status in (502, 503)
    assert "127.0.0.1" not in answer.error.message
    assert pair.generation.state().requests == 0
    await pair.context.until(lambda state: state.held_blocks == 0)
    assert pair.context.state().handoffs.released >= 1
    for worker in pair.stubs:
        worker.clear_faults()
    await until(lambda: all(pool.ready for pool in pools(pair.dispatch)))
    assert texts_of((await pair.ask(CHAT)).body)
    await pair.settled()


CONFIG = '{"tp_size": 1}'
READY = {"status": 1, "engine_endpoint_info": {"zmq_address": "tcp://a:1"}, "kvtransfer_endpoint_info": [{"a": 1}]}
DONE = {"status": 1}


def drive(*answers: Any) -> list[tuple[str, str, Any]]:
    """The calls that are made with these answers."""
    steps = ENGINE.connect("http://c:1", "http://g:1")
    made: list[tuple[str, str, Any]] = []
    answer: Any = None
    try:
        for following in (*answers, None):
            step = steps.send(answer)
            body = orjson.loads(step.body) if step.body else None
            made.append((step.role, step.path.removeprefix("/distserve/"), body))
            answer = following
    except StopIteration:
        pass
    return made


@pytest.mark.parametrize("config", [CONFIG, {"tp_size": 1}])
def test_each_is_told_of_the_other(config: Any) -> None:
    """Their names are their addresses; what one says of itself is for the other one."""
    calls = drive(config, config, {**READY, "kvtransfer_endpoint_info": [{"of": "c"}]}, READY, DONE, DONE)
    assert [(role, path) for role, path, _ in calls] == [
        (role, path) for path in LINK for role in ("context", "generation")
    ]
    assert calls[3][2] == {
        "protocol": 2,
        "local_engine_id": "http://g:1",
        "local_engine_config": {"tp_size": 1},
        "remote_engine_id": "http://c:1",
        "remote_engine_config": {"tp_size": 1},
        "rdma_config": {"with_gdr": True, "link_type": 2},
    }
    assert calls[5][2] == {
        "protocol": 2,
        "remote_engine_id": "http://c:1",
        "remote_engine_endpoint_info": READY["engine_endpoint_info"],
        "remote_kvtransfer_endpoint_info": [{"of": "c"}],
    }


@pytest.mark.parametrize(
    "answers",
    [
        [None],
        ["{"],
        ["[]"],
        [{}],
        [7],
        [CONFIG, '{"tp_size": 8}'],
        [CONFIG, CONFIG, None],
        [CONFIG, CONFIG, {"status": 2}],
        [CONFIG, CONFIG, READY, []],
        [CONFIG, CONFIG, READY, READY, {"status": "1"}],
        [CONFIG, CONFIG, READY, READY, DONE, {}],
    ],
)
def test_answers_that_make_no_sense_connect_nothing(answers: list[Any]) -> None:
    """Also workers that are not split alike: a cache would be moved to the wrong places."""
    with pytest.raises(MalformedFault):
        drive(*answers)


async def test_a_client_that_leaves_while_workers_are_connected_holds_nothing(pair: Pair) -> None:
    """And the connection is made when the next one comes."""
    pair.context.add_fault("hang", path="/distserve/p2p_connect")
    exchange = exchange_of(orjson.dumps(CHAT))
    task = asyncio.create_task(ask(pair.dispatch, exchange))
    await pair.context.until(lambda state: "/distserve/p2p_connect" in state.probes)
    exchange.interrupt(ClientGone())
    with pytest.raises(ClientGone):
        await task
    await pair.context.until(lambda state: state.held_blocks == 0)
    assert (await pair.ask(CHAT)).rejection is None
    await pair.settled()
