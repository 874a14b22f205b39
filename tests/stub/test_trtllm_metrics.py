"""What a TensorRT-LLM worker tells of its clock, its times and its cache."""

import re
import time

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.dispatch.embedded.stub.cache import PrefixCache
from plugins.dispatch.embedded.stub.engines.trtllm_events import CacheEvents, hash_block
from tests.stub.pairs import WORDS, send
from tests.stub.support import CHAT, COMPLETION, PATHS, context_body, generation_body, post

pytestmark = pytest.mark.anyio

ASKED = {"X-TRTLLM-return-metrics": "1"}
HASH_OF_32 = 17461474797406555673
HASH_OF_TWO = 12224014189640449627
CLOCK = re.compile(r"receive;ts=(\d+\.\d{9}), transmit;ts=(\d+\.\d{9})")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("skew", [0.0, 5_000.0])
async def test_every_answer_tells_the_clock(client: aiohttp.ClientSession, stream: bool, skew: float) -> None:
    """When a request came and when its answer left is told on the worker's own clock, refusals included."""
    async with run_stub("trtllm", clock_skew=skew) as stub:
        for body in (CHAT, {**CHAT, "n": 0}):
            before = time.monotonic()
            async with client.post(stub.url + PATHS["chat"], json={**body, "stream": stream}) as response:
                found = CLOCK.fullmatch(response.headers["X-TRTLLM-Clock-Sync"])
                await response.read()
            assert found is not None
            received, sent = map(float, found.groups())
            assert before <= received - skew <= sent - skew <= time.monotonic()


async def test_a_whole_answer_tells_its_times_in_headers(client: aiohttp.ClientSession, aggregated: Stub) -> None:
    """When asked, the headers have the phases' durations and the beginning and end; else they have not."""
    for headers in (ASKED, {}):
        async with client.post(aggregated.url + PATHS["chat"], json=CHAT, headers=headers) as response:
            timing = response.headers.get("Server-Timing")
            assert (timing is None) is (headers == {})
            if timing is not None:
                names = re.findall(r"server_(\w+);dur=\d+\.\d{6}", timing)
                assert names == ["queue", "ttft", "e2e"]
                assert re.fullmatch(
                    r"server-start;ts=\d+\.\d{9}, server-end;ts=\d+\.\d{9}", response.headers["X-TRTLLM-Start-End-Time"]
                )
                assert response.headers["X-TRTLLM-Step-Metrics"].startswith("server-step-0-forward;dur=")


async def test_a_stream_tells_its_times_after_its_end(client: aiohttp.ClientSession, aggregated: Stub) -> None:
    """When asked, a stream has one more event behind the end marker, and no such headers."""
    body = {**CHAT, "stream": True}
    async with client.post(aggregated.url + PATHS["chat"], json=body, headers=ASKED) as response:
        raw = await response.read()
        assert "Server-Timing" not in response.headers
    head, _, tail = raw.partition(b"data: [DONE]\n\n")
    assert head
    name, data = tail.decode().strip().split("\n")
    assert name == "event: trtllm.perf_metrics"
    metrics = orjson.loads(data.removeprefix("data: "))
    assert metrics.keys() == {"Server-Timing", "X-TRTLLM-Start-End-Time", "X-TRTLLM-Step-Metrics"}
    _status, raw = await send(client, aggregated, PATHS["chat"], body)
    assert raw.endswith(b"data: [DONE]\n\n")


async def test_a_generation_leg_tells_its_transfer(
    client: aiohttp.ClientSession, context: Stub, generation: Stub
) -> None:
    """The time that the fetch took is among the durations of a generation leg."""
    _status, answer = await post(client, context, PATHS["chat"], context_body(CHAT))
    body = generation_body(CHAT, answer)
    async with client.post(generation.url + PATHS["chat"], json=body, headers=ASKED) as response:
        assert "server_kv_transfer;dur=" in response.headers["Server-Timing"]


async def test_the_clock_can_be_asked_and_set(client: aiohttp.ClientSession) -> None:
    """A probe gives two times with a pause between them; the offset that is set is counted from then on."""
    async with run_stub("trtllm", clock_skew=1_000) as stub:
        async with client.get(stub.url + "/steady_clock_offset") as response:
            told = await response.json()
        assert told["receive_ts"] + 0.1 < told["transmit_ts"]
        assert (await post(client, stub, "/steady_clock_offset", {"offset": -1_000}))[0] == 200
        async with client.post(stub.url + PATHS["chat"], json=CHAT) as response:
            found = CLOCK.fullmatch(response.headers["X-TRTLLM-Clock-Sync"])
        assert found is not None
        assert abs(float(found[1]) - time.monotonic()) < 500
        assert (await post(client, stub, "/steady_clock_offset", {"offset": "x"}))[0] == 400
        assert stub.state().requests == 1, "setting the clock is no work"


async def test_the_cache_tells_what_came(client: aiohttp.ClientSession, aggregated: Stub) -> None:
    """Polled events name each new block once, by a hash that chains them; the first poll says that there is a cache."""
    _status, raw = await send(client, aggregated, "/kv_cache_events", None)
    (created,) = orjson.loads(raw)
    assert (created["data"]["type"], created["hash_algo"]) == ("created", "v1_block_key")
    for _ in range(2):
        await post(client, aggregated, PATHS["completions"], {**COMPLETION, "prompt": list(range(100, 170))})
    _status, raw = await send(client, aggregated, "/kv_cache_events", None)
    first, second = (event["data"] for event in orjson.loads(raw))
    assert first["parent_hash"] is None
    assert second["parent_hash"] == first["blocks"][0]["block_hash"] == hash_block(range(100, 132))
    assert second["blocks"][0]["block_hash"] == hash_block(range(132, 164), first["blocks"][0]["block_hash"])
    assert orjson.loads((await send(client, aggregated, "/kv_cache_events", None))[1]) == []
    assert aggregated.state().requests == 2


def test_a_full_cache_forgets_the_oldest() -> None:
    """Blocks beyond the capacity go, oldest use first, and their going is told by the same hash."""
    cache = PrefixCache(2, capacity=2)
    events = CacheEvents(cache)
    cache.keep([1, 2])
    cache.keep([3, 4])
    assert cache.match([1, 2, 0]) == 2, "and is used again"
    cache.keep([9, 9])
    assert [cache.match([*block, 0]) for block in ([1, 2], [3, 4], [9, 9])] == [2, 0, 2]
    data = [event["data"] for event in events.take()]
    assert data[-1] == {"type": "removed", "block_hashes": [hash_block([3, 4])]}


def test_a_block_has_the_hash_of_its_chain() -> None:
    """The hash is that which routers compute, over the tokens and the block before them."""
    assert hash_block(range(32)) == HASH_OF_32
    assert hash_block([4, 5], hash_block([1, 2, 3])) == HASH_OF_TWO


@pytest.mark.parametrize("kind", ["completions", "chat"])
async def test_cached_tokens_come_from_the_context_phase(
    client: aiohttp.ClientSession, context: Stub, generation: Stub, kind: str
) -> None:
    """The second context leg of a prompt has its full blocks cached, and the generation leg says so."""
    body = {"completions": {**COMPLETION, "prompt": WORDS}, "chat": CHAT}[kind]
    if kind == "chat":
        body = {**CHAT, "messages": [{"role": "user", "content": WORDS}]}
    for number, cached in ((1, 0), (2, 64)):
        _status, answer = await post(client, context, PATHS[kind], context_body(body, number))
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        _status, answer = await post(client, generation, PATHS[kind], generation_body(body, answer))
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
