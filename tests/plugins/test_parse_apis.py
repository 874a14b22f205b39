"""The promise of `parse_request` over all APIs: which slots are filled, and what is said of what is not done."""

from typing import Any

import orjson
import pytest

from kernel import Endpoint
from kernel.testing import build_exchange, run_chain
from plugins.endpoints import (
    COMPLETIONS,
    COUNT_TOKENS,
    DETOKENIZE,
    EMBEDDINGS,
    GENERATIVE,
    MESSAGES,
    RELAYED,
    RESPONSES,
    TOKENIZE,
)
from plugins.parse_request import ParseRequest
from plugins.slots import MODEL, PAYLOAD, STREAM, InvalidRequest
from tests.plugins.support import chat, counting

pytestmark = pytest.mark.anyio

BODY = chat(input="x", max_tokens=1, tokens=[1])
"""A body that is valid for every API but completions."""


@pytest.mark.parametrize("endpoint", [*GENERATIVE, *RELAYED], ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("stream", [True, False])
async def test_valid_body_fills_the_slots(endpoint: Endpoint, stream: bool) -> None:
    """What is relayed is no stream, whatever its body says."""
    prompt = {"prompt": "x"} if endpoint is COMPLETIONS else {}
    raw = orjson.dumps(BODY | prompt | {"stream": stream})
    exchange = build_exchange(endpoint, body=raw)

    await run_chain([ParseRequest()], exchange)

    assert exchange[PAYLOAD].encode() is raw
    assert exchange[MODEL] == "m"
    assert exchange[STREAM] is (stream and endpoint in GENERATIVE)


@pytest.mark.parametrize("endpoint", [TOKENIZE, DETOKENIZE], ids=lambda endpoint: endpoint.name)
async def test_model_that_is_not_named_is_empty(endpoint: Endpoint) -> None:
    """Dispatch takes the only one there is."""
    exchange = build_exchange(endpoint, body=b'{"content":"x"}')

    await run_chain([ParseRequest()], exchange)

    assert exchange[MODEL] == ""


@pytest.mark.parametrize(
    ("endpoint", "data", "param"),
    [
        (RESPONSES, {"model": "m", "input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
        (RESPONSES, {"model": "m"}, "input"),
        (MESSAGES, chat(), "max_tokens"),
        (MESSAGES, chat(max_tokens=1, system=7), "system"),
        (COUNT_TOKENS, {"model": "m"}, "messages"),
        (EMBEDDINGS, {"input": "x"}, "model"),
    ],
)
async def test_invalid_body_is_refused_and_counted(endpoint: Endpoint, data: dict[str, Any], param: str) -> None:
    """Whatever the API, once, with the name of the field."""
    exchange = build_exchange(endpoint, body=orjson.dumps(data))

    with counting() as changes, pytest.raises(InvalidRequest) as raised:
        await run_chain([ParseRequest()], exchange)

    assert (raised.value.status, raised.value.param) == (400, param)
    assert changes == {"validation_exceptions_total": 1}
    assert PAYLOAD not in exchange


async def test_answers_that_should_be_kept_are_warned_of_once(logged: list[Any]) -> None:
    """Where a client says so; the API's default is no wish. The body stays as it is."""
    plugin = ParseRequest()
    for store in (None, False, "default", True, True):
        data = {"model": "m", "input": "x"} | ({} if store == "default" else {"store": store})
        exchange = build_exchange(RESPONSES, body=orjson.dumps(data))
        await run_chain([plugin], exchange)

        assert exchange[PAYLOAD].data == data
        assert [line["event"] for line in logged] == ["store.ignored"] * (store is True)
    await run_chain([plugin], build_exchange(MESSAGES, body=orjson.dumps(chat(max_tokens=1, store=True))))
    assert len(logged) == 1
