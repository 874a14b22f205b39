"""vLLM's connectors to a store that all workers share."""

from pathlib import Path

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub, run_stub
from tests.stub.pairs import APIS, BODIES, EXTERNAL, LIMITS, PATHS, metrics, send, text_of

pytestmark = pytest.mark.anyio

apis = pytest.mark.parametrize("api", APIS)


@apis
@pytest.mark.parametrize("connector", ["shared-storage", "lmcache"])
async def test_a_shared_store_needs_no_handoff(
    client: aiohttp.ClientSession, vllm: Stub, tmp_path: Path, api: str, connector: str
) -> None:
    """The prompt is the key: the decode leg is the client's own body, and only its last tokens are computed."""
    _status, expected = await send(client, vllm, PATHS[api], BODIES[api])
    async with (
        run_stub("vllm", role="prefill", connector=connector, storage_path=str(tmp_path)) as prefill,
        run_stub("vllm", role="decode", connector=connector, storage_path=str(tmp_path)) as decode,
    ):
        assert (prefill.side_port, decode.side_port) == (None, None)
        await send(client, prefill, PATHS[api], {**BODIES[api], LIMITS[api]: 1})
        status, raw = await send(client, decode, PATHS[api], BODIES[api])
        assert (status, text_of(raw)) == (200, text_of(expected))
        assert (await metrics(client, decode))[EXTERNAL] == 64
        assert (b"num_lmcache_extra_cached_tokens" in raw) is (connector == "lmcache")
        if api == "chat":
            assert orjson.loads(raw)["usage"]["prompt_tokens_details"]["cached_tokens"] == 64
        assert prefill.state().handoffs == decode.state().handoffs == HandoffCounts()


@pytest.mark.parametrize(("tokens", "found"), [(31, 0), (32, 0), (33, 32), (64, 32), (65, 64)])
async def test_the_last_token_is_always_computed(
    client: aiohttp.ClientSession, tmp_path: Path, tokens: int, found: int
) -> None:
    """However much of a prompt is in the store or in the cache, its last token is not taken from there."""
    async with run_stub("vllm", connector="shared-storage", storage_path=str(tmp_path)) as first:
        body = {"model": "stub", "prompt": list(range(100, 100 + tokens))}
        for cached in (0, found):
            _status, raw = await send(client, first, PATHS["completions"], body)
            assert orjson.loads(raw)["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
    async with run_stub("vllm", connector="shared-storage", storage_path=str(tmp_path)) as second:
        await send(client, second, PATHS["completions"], body)
        assert (await metrics(client, second))[EXTERNAL] == found


async def test_a_store_of_ones_own_is_not_shared(client: aiohttp.ClientSession) -> None:
    """Without a folder each worker has a store of its own, and a decode worker puts nothing into it."""
    async with run_stub("vllm", role="decode", connector="shared-storage") as decode:
        for _ in range(2):
            await send(client, decode, PATHS["chat"], BODIES["chat"])
        assert (await metrics(client, decode))[EXTERNAL] == 0


@pytest.mark.parametrize(("threshold", "reason"), [(0.5, "cache_threshold"), (0, "length"), (None, "length")])
async def test_too_few_hits_decline_a_request(
    client: aiohttp.ClientSession, tmp_path: Path, threshold: float | None, reason: str
) -> None:
    """A decode-first request is declined without a token until the store has enough of its prompt."""
    body = {**BODIES["chat"], "cache_hit_threshold": threshold}
    async with (
        run_stub("vllm", role="prefill", connector="shared-storage", storage_path=str(tmp_path)) as prefill,
        run_stub("vllm", role="decode", connector="shared-storage", storage_path=str(tmp_path)) as decode,
    ):
        _status, raw = await send(client, decode, PATHS["chat"], body)
        answer = orjson.loads(raw)
        assert answer["choices"][0]["finish_reason"] == reason
        assert answer["usage"]["completion_tokens"] == (0 if reason == "cache_threshold" else 6)
        streamed = (await send(client, decode, PATHS["chat"], {**body, "stream": True}))[1]
        assert f'"finish_reason":"{reason}"'.encode() in streamed
        await send(client, prefill, PATHS["chat"], {**body, "max_tokens": 1, "cache_hit_threshold": 0})
        _status, raw = await send(client, decode, PATHS["chat"], body)
        assert orjson.loads(raw)["choices"][0]["finish_reason"] == "length"


async def test_a_lost_store_is_a_fault(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """With the fault `no_handoff` a prefill leaves nothing in the store."""
    async with (
        run_stub("vllm", role="prefill", connector="lmcache", storage_path=str(tmp_path)) as prefill,
        run_stub("vllm", role="decode", connector="lmcache", storage_path=str(tmp_path)) as decode,
    ):
        prefill.add_fault("no_handoff")
        asked = {"do_remote_decode": True}
        await send(client, prefill, PATHS["chat"], {**BODIES["chat"], "kv_transfer_params": asked})
        await send(client, decode, PATHS["chat"], BODIES["chat"])
        assert (await metrics(client, decode))[EXTERNAL] == 0
