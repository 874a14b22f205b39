"""What is particular to LMDeploy's workers: they are connected from outside, and hold a cache until it is taken."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from kernel import ClientGone
from plugins.dispatch.client import MalformedFault
from plugins.dispatch.embedded.stub import Stub
from plugins.dispatch.engine import Handoff, Request
from plugins.dispatch.engines.lmdeploy import LmdeployEngine
from plugins.dispatch.worker import Role
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS
from plugins.slots import Payload
from tests.dispatch.engines.pairs import ASKED, CHAT, COMPLETION, Pair, aggregated, pair_of, texts_of
from tests.dispatch.retries.fleets import fleet_of
from tests.dispatch.support import Answer, ask, exchange_of

pytestmark = pytest.mark.anyio

ENGINE = LmdeployEngine()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A context and a generation worker that do not know each other yet."""
    async with pair_of(ENGINE) as pair:
        yield pair


def bodies_of(stub: Stub) -> list[Any]:
    """The bodies of the requests for work, in their order."""
    return [received.body for received in stub.state().last_requests if received.is_work]


def freed(pair: Pair) -> int:
    """How many caches the context worker was told to give up."""
    return pair.context.state().handoffs.released


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("endpoint", "data"), ASKED)
async def test_each_leg_is_sent_what_it_needs(pair: Pair, endpoint: Any, data: Any, stream: bool) -> None:
    """One token and a cache that is kept, then the whole request with the place of the cache."""
    extra: dict[str, Any] = {"stream": stream, "session_id": 4, "min_new_tokens": 3, "temperature": 0.0}
    if stream:
        extra["stream_options"] = {"include_usage": True}
    await pair.ask(data, endpoint, **extra)
    (first,), (second,) = map(bodies_of, pair.stubs)
    asked = {name: value for name, value in data.items() if name != "max_tokens"}
    one = {"max_tokens": 1} | ({"max_completion_tokens": 1} if endpoint is CHAT_COMPLETIONS else {})
    kept = {"stream": False, "with_cache": True, "preserve_cache": True}
    assert first == {**asked, "temperature": 0.0, **one, **kept}
    migration = second.pop("migration_request")
    del extra["session_id"]
    assert second == {**data, **extra}
    assert migration.keys() == {
        *("protocol", "remote_engine_id", "remote_session_id"),
        *("remote_block_ids", "remote_token_id", "is_dummy_prefill"),
    }
    assert (migration["protocol"], migration["remote_engine_id"]) == (2, pair.context.url)
    assert migration["is_dummy_prefill"] is False
    await pair.settled()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["status", "die_before_headers", "die_after_headers", "garbage"])
async def test_a_cache_that_nobody_takes_is_given_up(pair: Pair, kind: str, stream: bool) -> None:
    """The generation worker failed before it took it; the context worker would hold it for ever."""
    await pair.ask(CHAT)
    pair.generation.add_fault(kind, status=429, times=-1)
    answer = await pair.ask(CHAT, stream=stream)
    assert answer.error.status == (429 if kind == "status" else 502)
    state = await pair.context.until(lambda state: state.held_blocks == 0)
    assert state.leaked_blocks == 0
    # a worker that dies after the head of a whole answer has taken the cache
    assert freed(pair) >= 1 or (kind, stream) == ("die_after_headers", False)


async def test_a_generation_worker_that_is_gone_is_left_out(pair: Pair) -> None:
    """With no other one there is a 503, and nothing is held."""
    await pair.ask(CHAT)
    pair.generation.kill()
    assert (await pair.ask(CHAT)).error.status in (502, 503)
    await pair.context.until(lambda state: state.held_blocks == 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_between_the_legs_holds_nothing(pair: Pair, stream: bool) -> None:
    """The generation worker has the request and has not looked at it yet."""
    pair.generation.add_fault("hang")
    exchange = exchange_of(orjson.dumps({**CHAT, "stream": stream}))
    task = asyncio.create_task(ask(pair.dispatch, exchange))
    await pair.generation.until(lambda state: state.running == 1)
    assert pair.context.state().held_blocks
    exchange.interrupt(ClientGone())
    with pytest.raises(ClientGone):
        await task
    await pair.settled()
    assert freed(pair) == 1


async def test_a_context_worker_that_keeps_nothing_hands_nothing_over(pair: Pair) -> None:
    """The generation worker does both phases, which every worker of this engine can."""
    pair.context.add_fault("no_handoff")
    answer = await pair.ask(CHAT)
    assert texts_of(answer.body) == texts_of((await aggregated("lmdeploy", CHAT, CHAT_COMPLETIONS)).body)
    assert "migration_request" not in bodies_of(pair.generation)[0]
    await pair.settled()


@pytest.mark.parametrize("extra", [{"n": 2}, {"n": 0}, {"prompt": ["a", "b"]}, {"prompt": [[1], [2]]}])
async def test_several_sequences_are_declined(pair: Pair, extra: dict[str, Any]) -> None:
    """Before any worker is asked."""
    answer: Answer = await pair.ask(COMPLETION, COMPLETIONS, **extra)
    assert (answer.error.status, answer.error.param) == (400, next(iter(extra)))
    assert pair.context.state().requests == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"id": "x", "cache_block_ids": [1], "remote_token_ids": [2]},
        {"id": "1" * 30, "cache_block_ids": [1], "remote_token_ids": [2]},
        {"cache_block_ids": [1], "remote_token_ids": [2]},
        {"id": "1", "cache_block_ids": [1], "remote_token_ids": []},
        {"id": "1", "cache_block_ids": [1], "remote_token_ids": None},
        {"id": "1", "cache_block_ids": [1], "remote_token_ids": [True]},
        {"id": "1", "cache_block_ids": {"a": 1}, "remote_token_ids": [2]},
        {"id": "1", "cache_session_id": "", "cache_block_ids": [1], "remote_token_ids": [2]},
    ],
)
def test_a_handoff_that_does_not_say_enough_is_a_fault(answer: dict[str, Any]) -> None:
    """The generation worker would fetch another request's cache, or fail."""
    request = Request(CHAT_COMPLETIONS, Payload(b"", {}), False)
    with pytest.raises(MalformedFault):
        ENGINE.read(Role.CONTEXT, request, orjson.dumps(answer))


@pytest.mark.parametrize(("owner", "session"), [({}, 17), ({"cache_session_id": 3}, 3), ({"cache_session_id": "4"}, 4)])
def test_the_session_is_the_one_that_owns_the_cache(owner: dict[str, Any], session: int) -> None:
    """Newer releases name it; in older ones the answer's id is its number. The last token is the one to go on from."""
    answer = {"id": "17", "cache_block_ids": [5, 6], "remote_token_ids": [7, 8], **owner}
    request = Request(CHAT_COMPLETIONS, Payload(b"", {}), False)
    handoff = ENGINE.read(Role.CONTEXT, request, orjson.dumps(answer))
    assert isinstance(handoff, Handoff)
    assert handoff.fields == {"remote_session_id": session, "remote_block_ids": [5, 6], "remote_token_id": 8}


def test_what_is_for_workers_is_taken_out_of_answers() -> None:
    """Whole ones and events; fields that say nothing stay, as they are part of the engine's shape."""
    request = Request(CHAT_COMPLETIONS, Payload(b"", {}), True)
    internal = {"cache_block_ids": [1], "remote_token_ids": [2], "cache_session_id": 3, "migration_request": {"a": 1}}
    answer = orjson.dumps({"id": "1", "choices": [], **internal})
    assert ENGINE.read(Role.GENERATION, request, answer) == b'{"id":"1","choices":[]}'
    assert ENGINE.concern.search(answer) is not None
    assert ENGINE.edit(request, None, b"", answer) == b'{"id":"1","choices":[]}'
    assert ENGINE.edit(request, None, b"", b"[DONE]") == b"[DONE]"
    silent = b'{"id":"1","cache_block_ids":null}'
    assert orjson.loads(ENGINE.edit(request, None, b"", silent)) == orjson.loads(silent)
    with pytest.raises(TypeError):
        ENGINE.free(Handoff({"remote_session_id": 1}))


async def test_a_failure_ends_no_connection_but_its_own() -> None:
    """Over the context worker's other ones, caches of other requests may be passing."""
    async with fleet_of(ENGINE, {}, contexts=1) as workers:
        failing, other = workers.generation
        for _ in range(2):
            await workers.ask()
        failing.add_fault("status", status=500)
        answers = [await workers.ask() for _ in range(4)]
        assert [answer.rejection for answer in answers] == [None] * 4
        asked = [[seen.path for seen in stub.state().last_requests] for stub in (failing, other)]
        assert ["/distserve/p2p_drop_connect" in paths for paths in asked] == [True, False]
        await workers.settled()
