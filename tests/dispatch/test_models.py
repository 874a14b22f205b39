"""The names under which models are served."""

import orjson
import pytest

from kernel import Endpoint, Secret
from kernel.testing import build_exchange
from plugins.endpoints import MODELS
from tests.dispatch.scripted import answer_ok, scripted
from tests.dispatch.support import ask, body_of, exchange_of, relay, running, single

pytestmark = pytest.mark.anyio


async def test_models_are_listed_in_configured_order() -> None:
    """Each name is one entry, an alias behind its model; a model that is down is listed too."""
    first = single("http://127.0.0.1:1", aliases=("x", "a"))
    second = relay(["http://127.0.0.1:2"], ["http://127.0.0.1:3"])
    second = type(second)("b", engine=second.engine, context=second.context, generation=second.generation)
    async with running(first, second) as dispatch:
        answer = await ask(dispatch, build_exchange(MODELS))
    assert answer.json["object"] == "list"
    assert [card["id"] for card in answer.json["data"]] == ["m", "x", "a", "b"]
    assert {(card["object"], type(card["created"])) for card in answer.json["data"]} == {("model", int)}
    assert [card["owned_by"] for card in answer.json["data"]] == ["kernel"] * 3 + ["tensorrt_llm"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("gpt-5", "'gpt-5'"), ("x" * 5000, "'" + "x" * 100 + "...'"), ("a\nb", r"'a\nb'"), ("", "''")],
)
async def test_an_unknown_model_is_not_found(name: str, shown: str) -> None:
    """The message is the one that SDKs turn into their own error; it does not repeat a long name."""
    async with scripted(answer_ok) as worker, running(single(worker.url)) as dispatch:
        error = (await ask(dispatch, exchange_of(body_of(model=name)))).error
    assert (error.status, error.message) == (404, f"the model {shown} does not exist")
    assert (error.code, error.kind, error.param) == ("model_not_found", "invalid_request_error", "model")


async def test_an_endpoint_that_dispatch_does_not_know_is_not_found() -> None:
    """It is innermost: there is nobody to pass the request on to."""
    async with running() as dispatch:
        error = (await ask(dispatch, build_exchange(Endpoint("embeddings", "/v1/embeddings")))).error
    assert (error.status, error.message) == (404, "nothing serves /v1/embeddings")


async def test_a_key_of_the_pool_is_sent_to_its_workers_alone() -> None:
    """It replaces whatever the client sent, and goes with probes too."""
    async with scripted(answer_ok) as worker, running(single(worker.url, api_key=Secret("sk-1"))) as dispatch:
        exchange = exchange_of(body_of(), headers=[("authorization", "Bearer client")])
        await ask(dispatch, exchange)
    assert worker.seen[0].header["authorization"] == "Bearer sk-1"
    assert orjson.loads(worker.seen[0].body) == orjson.loads(body_of())
