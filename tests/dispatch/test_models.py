"""The names under which models are served."""

from datetime import datetime, timedelta

import orjson
import pytest

from kernel import Endpoint, Exchange, Secret
from kernel.testing import build_exchange
from plugins.endpoints import MODELS, ONE_MODEL
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


def listing(query: str = "", **headers: str) -> Exchange:
    """A request for the list."""
    exchange = build_exchange(MODELS, headers=[(name.replace("_", "-"), value) for name, value in headers.items()])
    exchange.scope["query_string"] = query.encode()
    return exchange


NAMES = ["m", "a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ("", NAMES, False),
        ("limit=2", ["m", "a"], True),
        ("limit=2&after_id=a", ["b", "c"], True),
        ("limit=2&after_id=c", ["d"], False),
        ("after_id=d", [], False),
        ("limit=2&before_id=c", ["a", "b"], True),
        ("limit=2&before_id=a", ["m"], False),
        ("limit=0", ["m"], True),
        ("limit=-1&limit=x", NAMES, False),
        ("limit=99999999999999999999", NAMES, False),
        ("limit=%C2%B2", NAMES, False),
        ("after_id=unknown", NAMES, False),
        ("%ff=&&limit", NAMES, False),
    ],
)
async def test_a_client_of_anthropics_gets_its_list(query: str, ids: list[str], more: bool) -> None:
    """By the header that names a version of its API; what makes no sense in the query is not looked at."""
    async with running(single("http://127.0.0.1:1", aliases=tuple(NAMES[1:]))) as dispatch:
        got = (await ask(dispatch, listing(query, anthropic_version="2023-06-01"))).json
        plain = (await ask(dispatch, listing(query))).json
    assert [card["id"] for card in got["data"]] == ids
    assert (got["has_more"], got["first_id"], got["last_id"]) == (more, *((ids[0], ids[-1]) if ids else (None, None)))
    for card in got["data"]:
        assert (card["type"], card["display_name"]) == ("model", card["id"])
        assert datetime.fromisoformat(card["created_at"]).utcoffset() == timedelta(0)
    assert [card["id"] for card in plain["data"]] == NAMES
    assert "has_more" not in plain


@pytest.mark.parametrize("anthropic", [False, True])
async def test_one_model_is_shown_by_its_name(anthropic: bool) -> None:
    """Which may hold slashes, and may be an alias; one that does not exist is not found."""
    headers = [("anthropic-version", "2023-06-01")] if anthropic else []
    async with running(single("http://127.0.0.1:1", aliases=("org/x",))) as dispatch:
        for name in ("m", "org/x"):
            exchange = build_exchange(ONE_MODEL, headers=headers)
            exchange.scope["path"] += name
            card = (await ask(dispatch, exchange)).json
            assert card["id"] == name
            assert ("type" in card, "object" in card) == (anthropic, not anthropic)
        exchange = build_exchange(ONE_MODEL, headers=headers)
        exchange.scope["path"] += "y" * 5000
        error = (await ask(dispatch, exchange)).error
        assert (error.status, error.code) == (404, "model_not_found")
        assert len(error.message) < 200


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
        error = (await ask(dispatch, build_exchange(Endpoint("images", "/v1/images")))).error
    assert (error.status, error.message) == (404, "nothing serves /v1/images")


async def test_a_key_of_the_pool_is_sent_to_its_workers_alone() -> None:
    """It replaces whatever the client sent, and goes with probes too."""
    async with scripted(answer_ok) as worker, running(single(worker.url, api_key=Secret("sk-1"))) as dispatch:
        exchange = exchange_of(body_of(), headers=[("authorization", "Bearer client")])
        await ask(dispatch, exchange)
    assert worker.seen[0].header["authorization"] == "Bearer sk-1"
    assert orjson.loads(worker.seen[0].body) == orjson.loads(body_of())
