"""Counts, embeddings and ranks: one worker answers as a whole, and nothing is handed over."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from kernel import Endpoint
from plugins.dispatch.config import ModelConfig, RoleConfig
from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.dispatch.engine import Engine
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.engines.sglang import SglangEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.endpoints import (
    COUNT_TOKENS,
    DETOKENIZE,
    EMBEDDINGS,
    RERANK,
    RERANK_UNVERSIONED,
    SCORE,
    SCORE_UNVERSIONED,
    TOKENIZE,
)
from plugins.slots import MODEL
from tests.dispatch.engines.apis import EVERYTHING
from tests.dispatch.engines.pairs import WORDS, pair_of
from tests.dispatch.scripted import Seen, answer_ok, scripted
from tests.dispatch.support import Answer, ask, exchange_of, running, single

pytestmark = pytest.mark.anyio

TURN = [{"role": "user", "content": WORDS}]
COUNT: Mapping[str, Any] = {"model": "m", "messages": TURN}
ENGINES: dict[str, Engine] = {
    "vllm": VllmEngine(),
    "sglang": SglangEngine(),
    "trtllm": TrtllmEngine(),
    "msgpack": TrtllmEngine(body="msgpack"),
}


async def count(dispatch: Any, data: Mapping[str, Any] = COUNT, endpoint: Endpoint = COUNT_TOKENS) -> Answer:
    """Ask how many tokens there are."""
    return await ask(dispatch, exchange_of(orjson.dumps(data), endpoint=endpoint))


def requests(*stubs: Stub) -> list[int]:
    """How often each was asked to count, or to do some work."""
    asked = [[seen for seen in stub.state().last_requests if seen.method == "POST"] for stub in stubs]
    return [len(each) for each in asked]


@pytest.mark.parametrize("name", ENGINES)
async def test_counts_rotate_over_context_workers(name: str) -> None:
    """Whatever the policy; the prompt is theirs. Generation workers are not asked."""
    engine = ENGINES[name]
    settings: dict[str, Any] = {"model": "m", "require_msgpack": name == "msgpack"}
    async with (
        run_stub(engine.name, role="context", **settings) as one,
        run_stub(engine.name, role="context", **settings) as two,
        run_stub(engine.name, role="generation", **settings) as generation,
    ):
        context = RoleConfig((one.url, two.url))
        config = ModelConfig("m", engine=engine, context=context, generation=RoleConfig((generation.url,)))
        async with running(config) as dispatch:
            for asked in range(1, 5):
                assert (await count(dispatch)).json["input_tokens"] > 70
                assert sum(requests(one, two)) == asked
                assert abs(int.__sub__(*requests(one, two))) <= 1
            assert requests(generation) == [0]
            one.kill()
            assert (await count(dispatch)).json["input_tokens"] > 70
            two.kill()
            assert (await count(dispatch)).json["input_tokens"] > 70
            assert requests(generation) == [1]
            await one.restart()
            await two.restart()


async def test_a_workers_error_keeps_its_status() -> None:
    """And its words; nothing is tried again."""
    async with pair_of(VllmEngine()) as pair:
        for status in (400, 404, 429, 500, 503):
            body = {"error": {"message": "no", "type": "x"}}
            pair.context.add_fault("status", path=COUNT_TOKENS.path, status=status, body=body)
            error = (await count(pair.dispatch)).error
            assert (error.status, error.message) == (status, "no")
        assert requests(*pair.stubs) == [5, 0]


RELAYED = [EMBEDDINGS, RERANK, RERANK_UNVERSIONED, SCORE, SCORE_UNVERSIONED, TOKENIZE, DETOKENIZE]


@pytest.mark.parametrize("endpoint", RELAYED, ids=lambda endpoint: endpoint.path)
async def test_what_is_relayed_passes_unchanged(endpoint: Endpoint) -> None:
    """The client's own bytes there, under the path that workers have, and the worker's own back."""
    raw = b'{"model" :"m",  "input":["a", "b"], "stream":true, "x":1.50}'
    said = b'[ {"index":0,"score":1e2} ]' if endpoint in (RERANK, RERANK_UNVERSIONED) else b'{"data": [1.50]}'

    async def answer(seen: Seen) -> None:
        await seen.answer(said)

    async with scripted(answer) as worker, running(single(worker.url)) as dispatch:
        got = await ask(dispatch, exchange_of(raw, endpoint=endpoint))
        (seen,) = worker.seen
    assert got.body == said
    assert got.reply is not None
    assert (b"content-type", b"application/json") in got.reply.headers
    assert seen.body == raw
    paths: dict[Endpoint, str] = {RERANK_UNVERSIONED: "/v1/rerank", SCORE_UNVERSIONED: "/v1/score"}
    path = paths.get(endpoint, endpoint.path)
    assert seen.line == f"POST {path} HTTP/1.1"


async def test_an_alias_is_told_to_workers_by_its_model() -> None:
    """As with requests that generate."""
    async with (
        scripted(answer_ok) as worker,
        running(single(worker.url, aliases=("x",), engine=EVERYTHING)) as dispatch,
    ):
        await count(dispatch, {**COUNT, "model": "x"})
        assert orjson.loads(worker.seen[0].body)["model"] == "m"


async def test_a_tokenizer_needs_no_name_where_there_is_one_model() -> None:
    """Its clients may not know any; with several, they have to."""
    raw = b'{"model":"", "content":"a"}'

    async def asked(dispatch: Any) -> Answer:
        exchange = exchange_of(raw, endpoint=TOKENIZE)
        exchange[MODEL] = ""
        return await ask(dispatch, exchange)

    async with scripted(answer_ok) as worker, scripted(answer_ok) as other:
        async with running(single(worker.url)) as dispatch:
            assert (await asked(dispatch)).json == {"ok": True}
        two = ModelConfig("n", workers=(other.url,))
        async with running(single(worker.url), two) as dispatch:
            error = (await asked(dispatch)).error
            assert (error.status, error.param) == (400, "model")


@pytest.mark.parametrize("endpoint", [EMBEDDINGS, RERANK, SCORE])
async def test_what_workers_do_not_have_is_said_so(endpoint: Endpoint) -> None:
    """Those of a pair generate, and do nothing else."""
    async with pair_of(VllmEngine()) as pair:
        error = (await ask(pair.dispatch, exchange_of(orjson.dumps(COUNT), endpoint=endpoint))).error
        assert (error.status, error.code) == (404, "api_not_served")
        assert endpoint.path in error.message
        assert requests(*pair.stubs) == [0, 0]


async def test_an_engine_says_what_its_workers_have() -> None:
    """The configuration may say otherwise."""
    engine = OpenAIEngine(apis=("embeddings",))
    async with scripted(answer_ok) as worker, running(single(worker.url, engine=engine)) as dispatch:
        assert (await count(dispatch, endpoint=EMBEDDINGS)).json == {"ok": True}
        assert (await ask(dispatch, exchange_of(orjson.dumps(COUNT)))).error.code == "api_not_served"
