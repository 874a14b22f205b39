"""All APIs over pairs of every engine's workers, against one worker of the same engine that does it all."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from kernel import Endpoint
from plugins.dispatch.engines.sglang import SglangEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.endpoints import MESSAGES, RESPONSES
from tests.dispatch.engines.apis import BODIES, CELLS, SETUPS, alone, counts_of, names_of
from tests.dispatch.engines.pairs import Pair, pair_of
from tests.dispatch.support import ONCE, pools
from tests.stub.pairs import frames, text_of

pytestmark = pytest.mark.anyio

USAGE = {"stream_options": {"include_usage": True}}


@pytest.fixture
async def cell(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Pair, Endpoint]]:
    """A pair of one engine's workers, without retries, and an API that they answer."""
    setup, endpoint = request.param
    engine, stub = SETUPS[setup]
    async with pair_of(engine, settings={"retry": ONCE}, **stub) as pair:
        yield pair, endpoint


cells = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]}-{cell[1].name}", indirect=True)
streamed = pytest.mark.parametrize("stream", [False, True])


@cells
@streamed
async def test_two_workers_say_what_one_would(cell: tuple[Pair, Endpoint], stream: bool) -> None:
    """Text, events and counts; the second time the context worker has the prompt in its cache, and it is told."""
    pair, endpoint = cell
    asked = {**BODIES[endpoint], "stream": stream}
    if stream and endpoint.name.endswith("completions"):
        asked |= USAGE
    engine = pair.generation.settings.engine
    for times in (1, 2):
        got = (await pair.ask(asked, endpoint)).body
        expected = (await alone(engine, endpoint, *[asked] * times)).body
        assert text_of(got) == text_of(expected) != ""
        assert counts_of(got) == counts_of(expected) != {}
        assert not stream or names_of(got) == names_of(expected)
    await pair.settled()
    assert pair.context.state().finished == pair.generation.state().finished == 2
    if not pair.dispatch.pools[0].engine.plan.together:
        assert pair.context.state().handoffs.fetched == 2


@cells
@pytest.mark.parametrize("kind", ["status", "die_after_headers", "error_event", "cut_mid_event"])
async def test_an_error_before_the_first_word_has_a_status(cell: tuple[Pair, Endpoint], kind: str) -> None:
    """In every grammar, although the generation worker had opened its stream."""
    pair, endpoint = cell
    stream = kind in ("error_event", "cut_mid_event")
    # only streams that open with something have anything before an error
    after = {"responses": 2, "messages": 1, "chat_completions": 1}.get(endpoint.name, 0) if stream else 0
    pair.generation.add_fault(kind, after=after, status=500)
    error = (await pair.ask({**BODIES[endpoint], "stream": stream}, endpoint)).error
    # of Responses, vLLM's streams have no errors: they break off
    cut = kind in ("die_after_headers", "cut_mid_event") or (
        kind == "error_event" and endpoint is RESPONSES and pair.generation.settings.engine == "vllm"
    )
    assert error.status == (502 if cut else 500)
    assert "127.0.0.1" not in error.message


@cells
@streamed
async def test_a_context_worker_that_declines_is_heard(cell: tuple[Pair, Endpoint], stream: bool) -> None:
    """Its status and its words, on every API, before anything of a stream."""
    pair, endpoint = cell
    pair.context.add_fault("status", status=429, body={"error": {"message": "later", "type": "rate_limit_error"}})
    error = (await pair.ask({**BODIES[endpoint], "stream": stream}, endpoint)).error
    assert (error.status, error.message) == (429, "later")
    assert pair.generation.state().finished == 0


async def test_a_response_that_ends_in_the_context_phase_is_three_events() -> None:
    """As TensorRT-LLM's frontend tells it, and with all of the answer in the last one."""
    asked = {**BODIES[RESPONSES], "input": "a [ends-in-context]"}
    async with pair_of(TrtllmEngine()) as pair:
        whole = (await pair.ask(asked, RESPONSES)).json
        events = frames((await pair.ask(asked, RESPONSES, stream=True)).body)
        assert pair.generation.state().requests == 0
        await pair.settled()
    assert [name for name, _ in events] == ["response.created", "response.in_progress", "response.completed"]
    assert [data["sequence_number"] for _, data in events] == [0, 1, 2]
    assert all(name == data["type"] for name, data in events)
    assert {data["response"]["id"] for _, data in events} == {events[0][1]["response"]["id"]}
    opened, last = events[0][1]["response"], events[2][1]["response"]
    assert (opened["status"], opened["output"], opened["usage"]) == ("in_progress", [], None)
    assert last["status"] == whole["status"] == "completed"
    assert text_of(orjson.dumps(last)) == text_of(orjson.dumps(whole)) != ""
    for answer in (whole, last):
        assert not {"disaggregated_params", "finish_reason", "prompt_token_ids", "prompt_token_ids_b64"} & set(answer)


@pytest.mark.parametrize("kind", ["web_search_preview", "code_interpreter", "mcp", "function", "web_search"])
async def test_a_worker_that_calls_tools_itself_goes_alone(kind: str) -> None:
    """A vLLM worker would compute the prompt that follows a call with the handoff of the first one."""
    tools = [{"type": kind, "name": "f", "parameters": {}}]
    async with pair_of(VllmEngine()) as pair:
        await pair.ask(BODIES[RESPONSES], RESPONSES, tools=tools)
        alone = pair.context.state().requests == 0
        assert alone is (kind in ("web_search_preview", "code_interpreter", "mcp"))
        await pair.settled()


@pytest.mark.parametrize("endpoint", [RESPONSES, MESSAGES])
async def test_limits_of_the_context_leg_are_those_of_its_api(endpoint: Endpoint) -> None:
    """One token, nothing streamed and nothing kept; the generation leg is the client's own."""
    limit = "max_output_tokens" if endpoint is RESPONSES else "max_tokens"
    extra: dict[str, Any] = {"stream": True, "stop_sequences": ["x"]} if endpoint is MESSAGES else {"stream": True}
    async with pair_of(VllmEngine()) as pair:
        await pair.ask(BODIES[endpoint], endpoint, **extra)
        sent = [stub.state().last_requests[-1].body for stub in pair.stubs]
    context, generation = sent
    assert isinstance(context, dict)
    assert isinstance(generation, dict)
    assert (context[limit], context["stream"]) == (1, False)
    assert not {"stop_sequences", "stream_options", "max_completion_tokens"} & context.keys()
    assert context.get("store", endpoint is MESSAGES) is (endpoint is MESSAGES)
    assert ("ignore_eos" in context) is (endpoint is RESPONSES)
    assert context["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
    del generation["kv_transfer_params"]
    assert generation == {**BODIES[endpoint], **extra}


@streamed
async def test_messages_are_not_handed_over_by_mooncake(stream: bool) -> None:
    """Its workers drop what ends with its first token, which other APIs can forbid: the generation worker does it."""
    asked = {**BODIES[MESSAGES], "stream": stream}
    async with pair_of(VllmEngine(connector="mooncake"), connector="mooncake") as pair:
        answer = await pair.ask(asked, MESSAGES)
        assert text_of(answer.body) == text_of((await alone("vllm", MESSAGES, asked)).body)
        assert [stub.state().requests for stub in pair.stubs] == [0, 1]
        await pair.settled()


@streamed
async def test_a_response_of_no_token_that_was_asked_for_is_no_failure(stream: bool) -> None:
    """SGLang's workers make none; else a client could have them ejected by asking for that."""
    async with pair_of(SglangEngine()) as pair:
        answer = await pair.ask({**BODIES[RESPONSES], "max_output_tokens": 0, "stream": stream}, RESPONSES)
        assert b'"output_tokens":0' in answer.body.replace(b" ", b"")
        assert [pool.workers[0].circuit.streak for pool in pools(pair.dispatch)] == [0, 0]
