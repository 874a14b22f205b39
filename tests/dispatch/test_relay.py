"""The relay between TensorRT-LLM workers, played by stubs that check the protocol on their side."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from kernel import StreamReply
from kernel.testing import run_chain
from plugins.dispatch.embedded.stub import ENDS_IN_CONTEXT, run_stub
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS
from plugins.slots import CONVERSATION, SERVED, Conversation
from tests.dispatch.relays import CHAT, Relay, aggregated, relay_in, text_of
from tests.dispatch.support import ask, exchange_of, loads, pools, relay, running

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["json", "msgpack"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Relay]:
    """The relay, in both formats of bodies, without retries."""
    async with relay_in(request.param) as relay:
        yield relay


COMPLETION = {"model": "m", "prompt": "Once upon a time", "max_tokens": 9}

ASKED = [(CHAT_COMPLETIONS, CHAT), (COMPLETIONS, COMPLETION)]


@pytest.mark.parametrize("extra", [{}, {"stream": True}, {"n": 2}, {"stop": ["水"]}])
@pytest.mark.parametrize(("endpoint", "data"), ASKED)
async def test_two_workers_say_what_one_would(pair: Relay, endpoint: Any, data: dict[str, Any], extra: Any) -> None:
    """Text and counts are those of an aggregated worker, streamed or not."""
    answer = await pair.ask(data, endpoint, **extra)
    expected = await aggregated(data, endpoint, **extra)
    assert text_of(answer.body) == text_of(expected) != ""
    if "stream" not in extra:
        assert answer.json["usage"] == orjson.loads(expected)["usage"]
    assert (pair.context.state().handoffs.fetched, pair.generation.state().finished) == (1, 1)


@pytest.mark.parametrize("endpoint_and_data", ASKED)
async def test_token_ids_may_travel_as_bytes(endpoint_and_data: Any) -> None:
    """The generation worker checks that the prompt is the one whose memory it gets."""
    endpoint, data = endpoint_and_data
    async with run_stub("trtllm", role="context") as context, run_stub("trtllm", role="generation") as generation:
        model = relay([context.url], [generation.url], gen_tokids_ctxbytes=True, gen_strip_message_history=True)
        async with running(model) as dispatch:
            answer = await ask(dispatch, exchange_of(orjson.dumps(data), endpoint=endpoint))
    assert text_of(answer.body) == text_of(await aggregated(data, endpoint))


async def test_nothing_internal_reaches_the_client(pair: Relay) -> None:
    """No address, no state, no ids of the relay, in any kind of answer."""
    for extra in ({}, {"stream": True}, {"messages": [{"role": "user", "content": ENDS_IN_CONTEXT}]}):
        body = (await pair.ask(CHAT, **extra)).body
        assert b"127.0.0.1" not in body
        assert b"opaque" not in body
        assert b"ctx_request_id" not in body


async def test_a_handoff_of_the_clients_own_is_ignored(pair: Relay) -> None:
    """It would name any address as the place of a KV cache."""
    forged = {"request_type": "generation_only", "ctx_request_id": 1, "ctx_info_endpoint": "http://10.0.0.5"}
    answer = await pair.ask(CHAT, disaggregated_params=forged, kv_transfer_params={"remote_host": "x"})
    assert text_of(answer.body) == text_of(await aggregated(CHAT, CHAT_COMPLETIONS))
    for stub in (pair.context, pair.generation):
        body = stub.state().last_requests[-1].body
        assert isinstance(body, dict)
        assert "10.0.0.5" not in str(body)


async def test_the_conversation_reaches_both_workers(pair: Relay) -> None:
    """As the top-level field that they route and cache by."""
    exchange = exchange_of(orjson.dumps(CHAT))
    exchange[CONVERSATION] = Conversation("c-1", "x-session-id")
    await ask(pair.dispatch, exchange)
    for stub in (pair.context, pair.generation):
        body = stub.state().last_requests[-1].body
        assert isinstance(body, dict)
        assert body["conversation_params"] == {"conversation_id": "c-1"}
        assert stub.state().last_requests[-1].header("x-request-id") == exchange.id
    assert exchange[SERVED].workers == [pair.context.url, pair.generation.url]


@pytest.mark.parametrize(("endpoint", "data"), ASKED)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_ends_in_the_context_phase_is_whole(
    pair: Relay, endpoint: Any, data: dict[str, Any], stream: bool
) -> None:
    """Its text reaches the client, streamed if it was asked so, and no generation worker is asked."""
    data = {**data, "prompt": ENDS_IN_CONTEXT} if "prompt" in data else {**data, "messages": [USER_ENDS]}
    extra = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    answer = await pair.ask(data, endpoint, **extra)
    expected = await aggregated(data, endpoint)
    assert text_of(answer.body) == text_of(expected) != ""
    assert pair.generation.state().requests == 0
    if stream:
        assert isinstance(answer.reply, StreamReply)
        usage = orjson.loads(answer.body.split(b"\n\n")[-3][6:])
        assert (usage["choices"], usage["usage"]) == ([], orjson.loads(expected)["usage"])
        finish = orjson.loads(answer.body.split(b"\n\n")[-4][6:])
        assert finish["choices"][0]["finish_reason"] == "stop"
    else:
        assert not {"prompt_token_ids", "prompt_token_ids_b64"} & answer.json.keys()
        assert "disaggregated_params" not in answer.json["choices"][0]


USER_ENDS = {"role": "user", "content": ENDS_IN_CONTEXT}


async def test_the_legs_are_reserved_one_after_the_other(pair: Relay) -> None:
    """The context worker is free again when its answer is in, before the generation worker has answered."""
    pair.generation.add_fault("slow", seconds=0.01)
    exchange = exchange_of(orjson.dumps({**CHAT, "stream": True}))
    reply = await run_chain([pair.dispatch], exchange)
    assert isinstance(reply, StreamReply)
    assert loads(pair.dispatch) == [0, 1]
    await exchange.release()
    assert loads(pair.dispatch) == [0, 0]
    assert [pool.settings.role for pool in pools(pair.dispatch)] == ["context", "generation"]


async def test_a_request_that_the_relay_cannot_carry_reaches_no_worker(pair: Relay) -> None:
    """Several prompts need several handoffs."""
    error = (await pair.ask(COMPLETION, COMPLETIONS, prompt=["a", "b"])).error
    assert (error.status, error.param) == (400, "prompt")
    assert pair.context.state().requests == 0
