"""The relay between TensorRT-LLM workers, played by stubs that check the protocol on their side."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from attrs import frozen

from kernel import ClientGone, StreamReply
from kernel.testing import run_chain
from plugins.dispatch.embedded.stub import ENDS_IN_CONTEXT, Stub, run_stub
from plugins.dispatch.plugin import Dispatch
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS
from plugins.metrics import CONTEXT, GENERATION
from plugins.slots import CONVERSATION, SERVED, Conversation
from tests.dispatch.counters import Counters
from tests.dispatch.support import ONCE, Answer, ask, exchange_of, loads, pools, relay, running, single

pytestmark = pytest.mark.anyio

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Tell me of 水"}], "max_tokens": 9}
COMPLETION = {"model": "m", "prompt": "Once upon a time", "max_tokens": 9}
ASKED = [(CHAT_COMPLETIONS, CHAT), (COMPLETIONS, COMPLETION)]


@frozen
class Relay:
    """One context worker, one generation worker, and dispatch."""

    context: Stub
    generation: Stub
    dispatch: Dispatch

    async def ask(self, data: dict[str, Any], endpoint: Any = CHAT_COMPLETIONS, **extra: Any) -> Answer:
        """Send one request."""
        return await ask(self.dispatch, exchange_of(orjson.dumps({**data, **extra}), endpoint=endpoint))


@pytest.fixture(params=["json", "msgpack"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Relay]:
    """The relay, in both formats of bodies, without retries."""
    strict = request.param == "msgpack"
    async with (
        run_stub("trtllm", role="context", require_msgpack=strict) as context,
        run_stub("trtllm", role="generation", require_msgpack=strict) as generation,
        running(relay([context.url], [generation.url], body=request.param), retry=ONCE) as dispatch,
    ):
        yield Relay(context, generation, dispatch)


def text_of(body: bytes) -> str:
    """The text of the first choice of an answer, streamed or not."""
    if not body.startswith(b"data: "):
        choice = orjson.loads(body)["choices"][0]
        text: str = choice["message"]["content"] if "message" in choice else choice["text"]
        return text
    *events, done, end = body.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    choices = [choice for event in events for choice in orjson.loads(event[6:])["choices"]]
    return "".join(choice["delta"].get("content") or "" if "delta" in choice else choice["text"] for choice in choices)


async def aggregated(data: dict[str, Any], endpoint: Any, **extra: Any) -> bytes:
    """What one worker that serves whole requests answers."""
    async with run_stub("trtllm") as stub, running(single(stub.url)) as dispatch:
        return (await ask(dispatch, exchange_of(orjson.dumps({**data, **extra}), endpoint=endpoint))).body


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


async def test_an_answer_without_a_handoff_goes_no_further(pair: Relay, logged: list[Any]) -> None:
    """The generation worker is not asked to answer from nothing."""
    pair.context.add_fault("no_handoff")
    error = (await pair.ask(CHAT)).error
    assert (error.status, error.message) == (502, "the context worker's answer has no handoff")
    assert pair.generation.state().requests == 0
    assert [line["role"] for line in logged if line["event"] == "leg.failed"] == ["context"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_context_workers_error_is_the_clients(pair: Relay, stream: bool) -> None:
    """With its status and its words; the generation worker hears nothing of it."""
    pair.context.add_fault("status", status=429, headers={"Retry-After": "4"})
    error = (await pair.ask(CHAT, stream=stream)).error
    assert (error.status, error.message) == (429, "this worker cannot serve the request now")
    assert error.headers == (("retry-after", "4"),)
    assert pair.generation.state().requests == 0


async def test_a_prompt_that_is_too_long_has_its_code() -> None:
    """From the context worker, which is the one that reads the prompt."""
    async with (
        run_stub("trtllm", role="context", context_tokens=4) as context,
        run_stub("trtllm", role="generation") as generation,
        running(relay([context.url], [generation.url])) as dispatch,
    ):
        error = (await ask(dispatch, exchange_of(orjson.dumps(CHAT)))).error
    assert (error.status, error.code) == (400, "context_length_exceeded")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["die_before_headers", "die_after_headers", "garbage", "status"])
@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_leg_that_fails_ends_the_request(pair: Relay, role: str, kind: str, stream: bool) -> None:
    """A status of its own, no load left, and each leg counted as what it was."""
    legs = {"context": Counters(CONTEXT), "generation": Counters(GENERATION)}
    getattr(pair, role).add_fault(kind)
    error = (await pair.ask(CHAT, stream=stream)).error
    assert error.status == (500 if kind == "status" else 502)
    assert "127.0.0.1" not in error.message
    assert loads(pair.dispatch) == [0, 0]
    assert legs[role].changes() == {"total": 1, "error": 1, "completed": 1}
    if role == "generation":
        assert legs["context"].changes() == {"total": 1, "completed": 1, "complete": 1}
    else:
        assert legs["generation"].changes() == {}


@pytest.mark.parametrize("role", ["context", "generation"])
async def test_a_client_that_leaves_stops_the_leg_that_runs(pair: Relay, role: str) -> None:
    """During the context phase as well as before the first token."""
    stub: Stub = getattr(pair, role)
    stub.add_fault("hang")
    exchange = exchange_of(orjson.dumps({**CHAT, "stream": True}))
    task = asyncio.create_task(ask(pair.dispatch, exchange))
    await stub.until(lambda state: state.running == 1)
    assert loads(pair.dispatch) == ([1, 0] if role == "context" else [0, 1])
    exchange.interrupt(ClientGone())
    with pytest.raises(ClientGone):
        await task
    assert loads(pair.dispatch) == [0, 0]
    await stub.until(lambda state: state.connections_open == 0)


async def test_a_context_worker_that_is_gone_is_replaced_with_a_new_id() -> None:
    """Nothing was sent to the first one, and the second never sees the first one's id."""
    async with (
        run_stub("trtllm", role="context") as gone,
        run_stub("trtllm", role="context") as there,
        run_stub("trtllm", role="generation") as generation,
        running(relay([gone.url, there.url], [generation.url])) as dispatch,
    ):
        gone.kill()
        exchange = exchange_of(orjson.dumps(CHAT))
        answer = await ask(dispatch, exchange)
        assert text_of(answer.body) == text_of(await aggregated(CHAT, CHAT_COMPLETIONS))
        assert exchange[SERVED].workers == [gone.url, there.url, generation.url]


async def test_a_generation_worker_that_is_gone_is_replaced_with_the_same_handoff() -> None:
    """It was not told of the handoff, so the handoff is still fresh."""
    async with (
        run_stub("trtllm", role="context") as context,
        run_stub("trtllm", role="generation") as gone,
        run_stub("trtllm", role="generation") as there,
        running(relay([context.url], [gone.url, there.url])) as dispatch,
    ):
        gone.kill()
        answer = await ask(dispatch, exchange_of(orjson.dumps(CHAT)))
        assert text_of(answer.body) == text_of(await aggregated(CHAT, CHAT_COMPLETIONS))
        assert context.state().requests == 1


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
