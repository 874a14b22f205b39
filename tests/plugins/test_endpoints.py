"""The table of endpoints: what each row says, and that the rows agree with each other."""

import pytest

from kernel import Endpoint
from kernel.testing import build_exchange
from plugins.endpoints import (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    COUNT_TOKENS,
    ENDPOINTS,
    GENERATIVE,
    MESSAGES,
    MODELS,
    NAMELESS,
    ONE_MODEL,
    RELAYED,
    RERANK_UNVERSIONED,
    RESPONSES,
    SCORE_UNVERSIONED,
    Api,
    dialect_of,
    model_asked_for,
)
from plugins.schemas import CHECKS

pytestmark = pytest.mark.anyio


def test_each_address_has_one_row() -> None:
    """No two rows are found by the same method and path."""
    assert len({(row.method, row.path) for row in ENDPOINTS}) == len(ENDPOINTS)


def test_every_row_is_of_one_sort() -> None:
    """It generates, is relayed, or lists models; what takes a body has a check for it."""
    assert GENERATIVE | RELAYED | {MODELS, ONE_MODEL} == {*ENDPOINTS}
    assert not GENERATIVE & RELAYED
    assert NAMELESS <= RELAYED
    assert {*CHECKS} == GENERATIVE | RELAYED


def test_what_generates_streams_and_has_a_limit() -> None:
    """And nothing else does."""
    for row in ENDPOINTS:
        assert isinstance(row, Api)
        assert (row.grammar is not None) == (row in GENERATIVE) == bool(row.limits)


@pytest.mark.parametrize(
    ("row", "limits", "dialect"),
    [
        (COMPLETIONS, ("max_tokens",), "openai"),
        (CHAT_COMPLETIONS, ("max_completion_tokens", "max_tokens"), "openai"),
        (RESPONSES, ("max_output_tokens",), "responses"),
        (MESSAGES, ("max_tokens",), "anthropic"),
    ],
)
def test_each_api_has_its_own_fields(row: Api, limits: tuple[str, ...], dialect: str) -> None:
    """As the API's home defines them."""
    assert row.limits == limits
    assert row.grammar == dialect_of(row) == dialect


def test_errors_of_what_belongs_to_an_api_have_its_shape() -> None:
    """Counting tokens is Anthropic's; an endpoint of another table has OpenAI's errors."""
    assert dialect_of(COUNT_TOKENS) == "anthropic"
    assert dialect_of(Endpoint("other", "/v1/messages")) == "openai"


def test_workers_are_asked_at_the_path_that_all_of_them_have() -> None:
    """The short paths are for clients alone."""
    assert (RERANK_UNVERSIONED.worker_path, SCORE_UNVERSIONED.worker_path) == ("/v1/rerank", "/v1/score")
    assert MESSAGES.worker_path == "/v1/messages"


@pytest.mark.parametrize("name", ["m", "org/model", "a/v1/models/b", "caf\u00e9", ""])
async def test_the_rest_of_the_path_is_the_models_name(name: str) -> None:
    """Also below a mount, and whatever the name looks like."""
    for mount in ("", "/api"):
        exchange = build_exchange(ONE_MODEL)
        exchange.scope["path"] = f"{mount}/v1/models/{name}"
        assert model_asked_for(exchange) == name
