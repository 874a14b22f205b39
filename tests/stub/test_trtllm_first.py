"""TensorRT-LLM with the generation phase first: it waits for what the context phase will give."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub, run_stub
from tests.stub.pairs import send, text_of
from tests.stub.support import BODIES, CHAT, PATHS, Body, context_body, post

pytestmark = pytest.mark.anyio

ID = (1 << 62) + 1


def halves(body: Body, context: Stub, number: int = ID, **params: object) -> tuple[Body, Body]:
    """Make the bodies of both legs, as a front end does that sends them at the same time."""
    asked: dict[str, Any] = {
        "request_type": "generation_only",
        "ctx_request_id": number,
        "disagg_request_id": number,
        "ctx_info_endpoint": context.url,
        "schedule_style": 1,
        **params,
    }
    return context_body(body, number, schedule_style=1), {**body, "disaggregated_params": asked}


@pytest.mark.parametrize("kind", ["completions", "chat"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("order", ["context", "generation"])
async def test_both_phases_meet(
    client: aiohttp.ClientSession, workers: tuple[Stub, Stub, Stub], kind: str, stream: bool, order: str
) -> None:
    """Whichever leg is first waits for the other; together they give the text of an aggregated worker."""
    context, generation, aggregated = workers
    _status, expected = await send(client, aggregated, PATHS[kind], BODIES[kind])
    first, second = halves(BODIES[kind], context)
    legs = [(context, first), (generation, {**second, "stream": stream})]
    early, late = legs if order == "context" else legs[::-1]
    waiting = asyncio.ensure_future(send(client, early[0], PATHS[kind], early[1]))
    await early[0].until(lambda state: state.running == 1)
    done = await send(client, late[0], PATHS[kind], late[1])
    answers = [await waiting, done] if order == "context" else [done, await waiting]
    assert [status for status, _raw in answers] == [200, 200]
    assert text_of(answers[1][1]) == text_of(expected)
    params = orjson.loads(answers[0][1])["choices"][0]["disaggregated_params"]
    assert (params["ctx_request_id"], params["disagg_request_id"], params["schedule_style"]) == (ID, ID, 1)
    for stub in (context, generation):
        assert (stub.state().handoffs, stub.state().violations) == (HandoffCounts(), {})


async def test_a_context_leg_alone_gives_up(client: aiohttp.ClientSession) -> None:
    """A context leg that no generation leg asks for is a 500 after its time; so is the other way round."""
    async with (
        run_stub("trtllm", role="context", pair_seconds=0.01) as context,
        run_stub("trtllm", role="generation", pair_seconds=0.01) as generation,
    ):
        first, second = halves(CHAT, context)
        status, answer = await post(client, context, PATHS["chat"], first)
        assert (status, "no generation worker" in answer["message"]) == (500, True)
        status, answer = await post(client, generation, PATHS["chat"], second)
        assert (status, "failed" in answer["message"]) == (500, True)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"ctx_request_id": 5}, 400),
        ({"ctx_info_endpoint": None}, 400),
        ({"disagg_request_id": None}, 400),
        ({"ctx_info_endpoint": "http://127.0.0.1:1"}, 500),
    ],
)
async def test_a_wrong_generation_leg(
    client: aiohttp.ClientSession, context: Stub, generation: Stub, change: Body, status: int
) -> None:
    """It needs the endpoint and one id for both phases; an endpoint that nobody answers is a 500."""
    _first, second = halves(CHAT, context, **change)
    assert (await post(client, generation, PATHS["chat"], second))[0] == status


async def test_another_prompt_is_refused(client: aiohttp.ClientSession, context: Stub, generation: Stub) -> None:
    """A generation leg with another prompt than the context leg's is a 400, and counted."""
    first, second = halves(CHAT, context)
    other = {**second, "messages": CHAT["messages"][-1:]}
    answers = await asyncio.gather(
        post(client, context, PATHS["chat"], first), post(client, generation, PATHS["chat"], other)
    )
    assert [status for status, _answer in answers] == [200, 400]
    assert generation.state().violations == {"handoff_prompt_differs": 1}


async def test_a_context_leg_that_leaves_is_not_told(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """A generation leg goes on waiting when the context leg is dropped; its worker's end fails it at once."""
    context.add_fault("slow", seconds=60)
    first, second = halves(CHAT, context)
    legs = [
        asyncio.ensure_future(post(client, context, PATHS["chat"], first)),
        asyncio.ensure_future(post(client, generation, PATHS["chat"], second)),
    ]
    await generation.until(lambda state: state.running == 1)
    await context.until(lambda state: state.running == 1)
    legs[0].cancel()
    await context.until(lambda state: state.aborted == 1)
    assert not legs[1].done()
    context.kill()
    assert (await legs[1])[0] == 500


async def test_a_second_taker_is_refused(client: aiohttp.ClientSession, context: Stub, generation: Stub) -> None:
    """What one generation worker waits for is not given to another one."""
    first, second = halves(CHAT, context)
    async with run_stub("trtllm", role="generation") as other:
        waiting = asyncio.ensure_future(post(client, generation, PATHS["chat"], second))
        await generation.until(lambda state: state.running == 1)
        await context.until(lambda state: state.pairs == 1)
        assert (await post(client, other, PATHS["chat"], second))[0] == 400
        assert (await post(client, context, PATHS["chat"], first))[0] == 200
        assert (await waiting)[0] == 200


async def test_misuse_is_counted(client: aiohttp.ClientSession, context: Stub, generation: Stub) -> None:
    """What this engine refuses by itself is counted too, so that one assertion holds for all engines."""
    _status, answer = await post(client, context, PATHS["chat"], context_body(CHAT))
    params = {**answer["choices"][0]["disaggregated_params"], "request_type": "generation_only"}
    good = {**CHAT, "disaggregated_params": params}
    await post(client, generation, PATHS["chat"], {**good, "messages": CHAT["messages"][-1:]})
    changed = {**params, "encoded_opaque_state": "AAAA"}
    await post(client, generation, PATHS["chat"], {**good, "disaggregated_params": changed})
    for status in (200, 500):
        assert (await post(client, generation, PATHS["chat"], good))[0] == status
    kinds = ("handoff_prompt_differs", "handoff_changed", "handoff_used_twice")
    assert generation.state().violations == dict.fromkeys(kinds, 1)


async def test_a_refused_generation_leg_keeps_the_blocks(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """A generation leg that is refused tells the context worker nothing: the blocks wait for another one."""
    _status, answer = await post(client, context, PATHS["chat"], context_body(CHAT))
    params = {**answer["choices"][0]["disaggregated_params"], "request_type": "generation_only"}
    body = {**CHAT, "disaggregated_params": params}
    assert (await post(client, generation, PATHS["chat"], {**body, "no_such": 1}))[0] == 400
    await generation.until(lambda state: state.running == 0)
    assert not generation.engine._errands
    assert (await post(client, generation, PATHS["chat"], body))[0] == 200


async def test_a_dropped_generation_leg_frees_the_context(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """A generation leg that is sent and dropped before it fetched takes the blocks with it."""
    generation.add_fault("hang")
    _status, answer = await post(client, context, PATHS["chat"], context_body(CHAT))
    params = {**answer["choices"][0]["disaggregated_params"], "request_type": "generation_only"}
    asked = asyncio.ensure_future(post(client, generation, PATHS["chat"], {**CHAT, "disaggregated_params": params}))
    await generation.until(lambda state: state.running == 1)
    asked.cancel()
    state = await context.until(lambda state: state.held_blocks == 0)
    assert (state.handoffs.held, state.leaked_blocks, generation.state().violations) == (0, 0, {})
