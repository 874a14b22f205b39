"""The meeting of the two halves of an SGLang request, and what becomes of one that stays alone."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub
from tests.stub.pairs import APIS, BODIES, PATHS, ROOM, clean, frames, metrics, paired, send, send_both, text_of

pytestmark = pytest.mark.anyio

Pair = tuple[Stub, Stub]
apis = pytest.mark.parametrize("api", APIS)


@apis
@pytest.mark.parametrize("stream", [False, True])
async def test_a_pair_gives_the_answer_of_one(
    client: aiohttp.ClientSession, sglang: Stub, sglang_pair: Pair, api: str, stream: bool
) -> None:
    """The decode half gives the text of an aggregated worker, the prefill half its first token."""
    _status, expected = await send(client, sglang, PATHS[api], BODIES[api])
    prefill, decode = sglang_pair
    first, second = await send_both(client, sglang_pair, PATHS[api], paired(prefill, api, stream=stream))
    assert (first[0], second[0]) == (200, 200)
    assert text_of(second[1]) == text_of(expected)
    assert text_of(first[1]) == text_of(expected).split()[0]
    assert clean(prefill, decode)
    assert prefill.state().handoffs == decode.state().handoffs == HandoffCounts(fetched=1)
    counted = await metrics(client, decode)
    assert counted["sglang:realtime_tokens_totalprefill_compute"] == 0
    assert (await metrics(client, prefill))["sglang:realtime_tokens_totalprefill_compute"] >= 70


@pytest.mark.parametrize("first", ["prefill", "decode"])
async def test_either_half_waits_for_the_other(client: aiohttp.ClientSession, sglang_pair: Pair, first: str) -> None:
    """Whichever half comes first holds its blocks and waits; neither is answered alone."""
    prefill, decode = sglang_pair
    early, late = (prefill, decode) if first == "prefill" else (decode, prefill)
    body = paired(prefill, "chat")
    waiting = asyncio.ensure_future(send(client, early, PATHS["chat"], body))
    state = await early.until(lambda state: state.held_blocks == 3)
    assert (state.running, waiting.done()) == (1, False)
    assert (await send(client, late, PATHS["chat"], body))[0] == 200
    assert (await waiting)[0] == 200
    assert clean(*sglang_pair)


@apis
async def test_a_half_without_a_room_is_refused(client: aiohttp.ClientSession, sglang_pair: Pair, api: str) -> None:
    """There is no answering alone for one half of a pair."""
    for stub in sglang_pair:
        for stream in (False, True):
            status, raw = await send(client, stub, PATHS[api], {**BODIES[api], "stream": stream})
            assert (status, b"without bootstrap room id" in raw) == (400, True)
    assert clean(*sglang_pair)


async def test_an_aggregated_worker_does_not_look_at_rooms(
    client: aiohttp.ClientSession, sglang: Stub, sglang_pair: Pair
) -> None:
    """Fields of a pair mean nothing to a worker that is no half of one."""
    status, _raw = await send(client, sglang, PATHS["chat"], paired(sglang_pair[0], "chat"))
    assert (status, sglang.state().held_blocks) == (200, 0)


@pytest.mark.parametrize(
    ("api", "status"), [("completions", 500), ("chat", 500), ("messages", 500), ("responses", 400)]
)
async def test_a_prefill_that_is_not_there(
    client: aiohttp.ClientSession, sglang_pair: Pair, api: str, status: int
) -> None:
    """A decode half whose bootstrap nobody answers fails after a while, on Responses as if the client had erred."""
    prefill, decode = sglang_pair
    body = paired(prefill, api)
    prefill.kill()
    answered, raw = await send(client, decode, PATHS[api], body)
    assert answered == status
    assert (b"Internal server error" in raw) is (api == "messages")
    assert (b"Lost connection with prefill instance" in raw) is (api != "messages")
    assert clean(decode)


@apis
async def test_a_prefill_that_dies_breaks_the_stream(
    client: aiohttp.ClientSession, sglang_pair: Pair, api: str
) -> None:
    """Headers come before the prefill is done: its end is an error event in a stream that said nothing yet."""
    prefill, decode = sglang_pair
    asked = asyncio.ensure_future(send(client, decode, PATHS[api], paired(prefill, api, stream=True)))
    await decode.until(lambda state: state.held_blocks == 3)
    prefill.kill()
    status, raw = await asked
    names = [name for name, _data in frames(raw)]
    assert (status, text_of(raw)) == (200, "")
    assert b"rror" in raw
    opening = {
        "messages": ["message_start", "error"],
        "responses": ["response.created", "response.in_progress", "error"],
    }
    assert names == opening.get(api, ["", ""])
    assert clean(decode)


@pytest.mark.parametrize("leaver", ["prefill", "decode"])
async def test_a_half_that_leaves_tells_nobody(client: aiohttp.ClientSession, sglang_pair: Pair, leaver: str) -> None:
    """When a client drops one half the other one goes on waiting: it has to be told as well."""
    prefill, decode = sglang_pair
    prefill.add_fault("slow", seconds=60)
    body = paired(prefill, "chat")
    halves = {
        "prefill": asyncio.ensure_future(send(client, prefill, PATHS["chat"], body)),
        "decode": asyncio.ensure_future(send(client, decode, PATHS["chat"], body)),
    }
    gone, stays = (prefill, decode) if leaver == "prefill" else (decode, prefill)
    await prefill.until(lambda state: state.pairs == 1)
    await decode.until(lambda state: state.held_blocks == 3)
    halves.pop(leaver).cancel()
    await gone.until(lambda state: state.aborted == 1 and state.held_blocks == 0)
    (left,) = halves.values()
    assert (left.done(), stays.state().running) == (False, 1)
    left.cancel()
    await stays.until(lambda state: state.aborted == 1 and state.held_blocks == 0)
    assert clean(prefill, decode)


async def test_blocks_for_nobody_are_dropped(client: aiohttp.ClientSession, sglang_pair: Pair) -> None:
    """A prefill half whose other half has joined and left ends all the same; its blocks are nobody's."""
    prefill, decode = sglang_pair
    prefill.add_fault("slow", seconds=0.5)
    body = paired(prefill, "chat")
    left = asyncio.ensure_future(send(client, decode, PATHS["chat"], body))
    await prefill.until(lambda state: state.pairs == 1)
    stays = asyncio.ensure_future(send(client, prefill, PATHS["chat"], body))
    await prefill.until(lambda _state: not prefill.faults)
    left.cancel()
    assert (await stays)[0] == 200
    assert prefill.state().handoffs == HandoffCounts(dropped=1)
    assert clean(prefill, decode)


async def test_another_prompt_than_the_prefills(client: aiohttp.ClientSession, sglang_pair: Pair) -> None:
    """Halves with different prompts meet, and the decode half answers nonsense."""
    prefill, _decode = sglang_pair
    body = paired(prefill, "chat")
    other = {**body, "messages": [{"role": "user", "content": "x"}]}
    first, second = await send_both(client, sglang_pair, PATHS["chat"], body, other)
    assert (first[0], second[0], "amberamber" in text_of(second[1])) == (200, 200, True)
    assert sglang_pair[1].state().violations == {"pair_prompt_differs": 1}


async def test_a_lost_prefill_spoils_the_answer(client: aiohttp.ClientSession, sglang_pair: Pair) -> None:
    """A prefill that was aborted says so in its own answer alone; the decode half answers nonsense with a 200."""
    prefill, decode = sglang_pair
    prefill.add_fault("no_handoff")
    first, second = await send_both(client, sglang_pair, PATHS["chat"], paired(prefill, "chat"))
    assert orjson.loads(first[1])["choices"][0]["finish_reason"] == "abort"
    assert (second[0], "amberamber" in text_of(second[1])) == (200, True)
    assert decode.state().violations == {}
    assert clean(*sglang_pair)


async def test_probabilities_of_the_prompt_are_the_prefills(
    client: aiohttp.ClientSession, sglang: Stub, sglang_pair: Pair
) -> None:
    """What the prefill half knows of the prompt and the decode half of the answer is together what one knows."""
    prefill, _decode = sglang_pair
    asked = {"text": "one two", "sampling_params": {"max_new_tokens": 3}, "return_logprob": True}
    _status, raw = await send(client, sglang, "/generate", asked)
    expected: dict[str, Any] = orjson.loads(raw)["meta_info"]
    meeting = {name: value for name, value in paired(prefill, "chat").items() if name.startswith("bootstrap")}
    first, second = await send_both(client, sglang_pair, "/generate", {**asked, **meeting})
    known = [orjson.loads(raw)["meta_info"] for _status, raw in (first, second)]
    inputs = known[0]["input_token_logprobs"] + known[1]["input_token_logprobs"]
    assert inputs == expected["input_token_logprobs"]
    assert known[1]["output_token_logprobs"] == expected["output_token_logprobs"]


async def test_many_pairs_at_once_leave_nothing(client: aiohttp.ClientSession, sglang_pair: Pair) -> None:
    """Two hundred pairs at the same time are all right, and nothing is held, leaked or wrong after them."""
    prefill, decode = sglang_pair

    async def run(number: int) -> None:
        api = APIS[number % 4]
        body = paired(prefill, api, ROOM + number, stream=number % 2 == 1)
        answers = await send_both(client, sglang_pair, PATHS[api], body)
        assert [status for status, _raw in answers] == [200, 200]

    await asyncio.gather(*map(run, range(200)))
    assert clean(prefill, decode)
    assert prefill.state().pairs == 0
