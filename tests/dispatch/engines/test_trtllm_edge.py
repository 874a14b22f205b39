"""What TensorRT-LLM's workers get of a client's words beside its body, and what the client gets of their worst ends."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from kernel import Endpoint, Exchange, Plugin
from kernel.testing import Written
from plugins.conversation_identity import ConversationIdentity
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.encode_reply import EncodeReply
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS, MESSAGES, RESPONSES
from plugins.messages_reply import MessagesReply
from plugins.messages_request import MessagesRequest
from plugins.sse_guard import SseGuard
from tests.dispatch.engines.apis import BODIES
from tests.dispatch.engines.pairs import Pair, pair_of
from tests.dispatch.scripted import Seen, scripted
from tests.dispatch.support import ask, body_of, exchange_of, relay, running, told
from tests.dispatch.trtllm_examples import PARAMS, context_answer
from tests.plugins.streams import split
from tests.plugins.support import serve

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
KEPT = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
FORMAT = {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}}


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two workers."""
    async with pair_of(TrtllmEngine()) as pair:
        yield pair


async def serve_through(pair: Pair, exchange: Exchange, *outer: Plugin) -> Written:
    """What a client gets through these plugins, which stand outside of dispatch."""
    return await serve(exchange, *outer, EncodeReply(), pair.dispatch)


def bodies_of(pair: Pair) -> list[dict[str, Any]]:
    """What each of the two workers was asked last."""
    found = [stub.state().last_requests[-1].body for stub in pair.stubs]
    assert all(isinstance(body, dict) for body in found)
    return found  # type: ignore[return-value]  # seen in the line before


@pytest.mark.parametrize("endpoint", [CHAT_COMPLETIONS, COMPLETIONS, RESPONSES, MESSAGES])
async def test_a_header_that_names_a_conversation_reaches_both_workers(pair: Pair, endpoint: Endpoint) -> None:
    """As the field by which they route and cache, on every API."""
    plugins = (ConversationIdentity(), MessagesReply(), MessagesRequest())
    raw = orjson.dumps(BODIES[endpoint])

    await serve_through(pair, exchange_of(raw, endpoint=endpoint, headers=[("x-session-id", " s-1 ")]), *plugins)

    assert [body["conversation_params"] for body in bodies_of(pair)] == [{"conversation_id": "s-1"}] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_the_schema_of_a_response_goes_out_under_its_own_name(pair: Pair, stream: bool) -> None:
    """To both workers as the client wrote it."""
    raw = orjson.dumps({**BODIES[RESPONSES], "text": FORMAT, "stream": stream})

    written = await serve_through(pair, exchange_of(raw, endpoint=RESPONSES), SseGuard())

    assert [body["text"] for body in bodies_of(pair)] == [FORMAT] * 2
    assert written.ended


async def test_a_stream_of_responses_that_breaks_between_two_workers_is_told_to_have_failed(pair: Pair) -> None:
    """By an error event, and the last state of the answer after it."""
    pair.generation.add_fault("cut_mid_event", after=4)

    raw = orjson.dumps({**BODIES[RESPONSES], "stream": True})
    written = await serve_through(pair, exchange_of(raw, endpoint=RESPONSES), SseGuard())

    assert [name for name, _ in split(written.body)][-2:] == [b"error", b"response.failed"]
    assert written.ended


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("role", ["context", "generation"])
async def test_the_null_of_an_engine_that_has_failed_for_good_is_no_answer(role: str, stream: bool) -> None:
    """Its worker answers 200 and null, and interrupts itself. Here nobody is, and the next one is served."""

    async def hand_over(seen: Seen) -> None:
        await seen.answer(orjson.dumps(context_answer()))

    async def die_once(seen: Seen) -> None:
        if len(dying.seen) == 1:
            await seen.answer(b"null")
        else:
            await seen.answer(orjson.dumps(whole))

    whole = {"choices": [{"finish_reason": "stop", "message": {"content": "served"}, "disaggregated_params": PARAMS}]}
    async with scripted(die_once) as dying, scripted(hand_over) as well:
        places = ([dying.url], [well.url]) if role == "context" else ([well.url], [dying.url])
        async with running(relay(*places)) as dispatch:
            failed = await ask(dispatch, exchange_of(body_of(stream=stream)))
            served = await ask(dispatch, exchange_of(body_of()))

    assert told(failed.error) == (502, "worker_error")
    assert b"served" in served.body


@pytest.mark.parametrize(
    ("setting", "own", "derived"),
    [
        (True, {}, ["clear_thinking", "drop_thinking", "enable_thinking"]),
        (True, {"enable_thinking": False, "other": 1}, ["clear_thinking", "drop_thinking"]),
        (True, {"enable_thinking": True, "clear_thinking": True, "drop_thinking": True}, None),
        (False, {}, None),
    ],
)
async def test_arguments_of_the_template_that_no_client_gave_are_told_to_workers_that_want_it(
    setting: bool, own: dict[str, Any], derived: list[str] | None
) -> None:
    """By name, to both: they would decline those that their template does not read. What a client gave is its own."""
    fields = {"thinking": {"type": "adaptive"}, "context_management": KEPT, "chat_template_kwargs": own}
    raw = orjson.dumps({**BODIES[MESSAGES], **fields})

    async with pair_of(TrtllmEngine(injected_chat_template_kwargs=setting)) as pair:
        await serve_through(pair, exchange_of(raw, endpoint=MESSAGES), MessagesReply(), MessagesRequest())

        for body in bodies_of(pair):
            assert body["chat_template_kwargs"].keys() >= {"clear_thinking", "drop_thinking", "enable_thinking"}
            assert body.get("injected_chat_template_kwargs") == derived
