"""What differs between the releases of vLLM."""

import aiohttp
import orjson
import pytest

from plugins.dispatch.embedded.stub import ENDS_IN_CONTEXT, Stub, run_stub
from tests.stub.pairs import APIS, BODIES, PATHS, prefill_body, relay, send, text_of
from tests.stub.support import Body

pytestmark = pytest.mark.anyio

apis = pytest.mark.parametrize("api", APIS)


async def test_large_numbers_must_stay_exact(client: aiohttp.ClientSession) -> None:
    """From 0.33 on there is a number in it that no double holds; rounded, the handoff is another one."""
    async with (
        run_stub("vllm", role="prefill", engine_version="0.33.0") as prefill,
        run_stub("vllm", role="decode", engine_version="0.33.0") as decode,
    ):
        body = await relay(client, prefill, "chat")
        number = body["kv_transfer_params"]["remote_registration_generation"]
        assert int(float(number)) != number
        body["kv_transfer_params"]["remote_registration_generation"] = int(float(number))
        await send(client, decode, PATHS["chat"], body)
        assert decode.state().violations == {"handoff_changed": 1}


@pytest.mark.parametrize(("version", "given"), [("0.19.0", False), ("0.32.0", True)])
async def test_an_answer_that_ends_at_once(client: aiohttp.ClientSession, version: str, given: bool) -> None:
    """A prefill whose first token ends the answer has a handoff only in newer releases, or when told to go on."""
    prompt = f"x {ENDS_IN_CONTEXT}"
    async with run_stub("vllm", role="prefill", engine_version=version) as prefill:
        for ignore, expected in ((False, given), (True, True)):
            body = prefill_body("completions", prompt=prompt, ignore_eos=ignore)
            _status, raw = await send(client, prefill, PATHS["completions"], body)
            assert (orjson.loads(raw)["kv_transfer_params"] is not None) is expected


@apis
async def test_older_releases_do_not_know_all_apis(client: aiohttp.ClientSession, api: str) -> None:
    """Before 0.20 only completions and chat take the handoff; the others ignore it."""
    async with run_stub("vllm", role="prefill", engine_version="0.18.1") as prefill:
        _status, raw = await send(client, prefill, PATHS[api], prefill_body(api))
        assert (prefill.state().handoffs.held == 1) is (api in ("completions", "chat"))
        if api in ("completions", "chat"):
            params = orjson.loads(raw)["kv_transfer_params"]
            assert params["remote_block_ids"] == [0, 1, 2], "a flat list"
            assert "transfer_mode" not in params


@pytest.mark.parametrize(("version", "cached"), [("0.31.0", 72), ("0.32.0", 0)])
async def test_a_pull_may_count_as_cached(client: aiohttp.ClientSession, version: str, cached: int) -> None:
    """Older decode workers tell fetched tokens as cached ones; what was cached is known to the prefill worker."""
    async with (
        run_stub("vllm", role="prefill", engine_version=version) as prefill,
        run_stub("vllm", role="decode", engine_version=version) as decode,
    ):
        _status, raw = await send(client, decode, PATHS["chat"], await relay(client, prefill, "chat"))
        assert orjson.loads(raw)["usage"]["prompt_tokens_details"]["cached_tokens"] == cached


@pytest.mark.parametrize(
    "change", [{"echo": True}, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}]
)
async def test_some_prompts_are_never_reused(client: aiohttp.ClientSession, change: Body) -> None:
    """With an echo, or a message of parts, the token ids are not looked at."""
    async with run_stub("vllm", engine_version="0.33.0") as stub:
        expected = await send(client, stub, PATHS["chat"], {**BODIES["chat"], **change})
        asked = {**BODIES["chat"], **change, "kv_transfer_params": {"prompt_token_ids": [5, 6]}}
        assert text_of((await send(client, stub, PATHS["chat"], asked))[1]) == text_of(expected[1])


async def test_the_prompt_can_be_reused(client: aiohttp.ClientSession, vllm: Stub) -> None:
    """From 0.33 on the decode leg takes the prefill's token ids; earlier ones ignore them."""
    _status, expected = await send(client, vllm, PATHS["chat"], BODIES["chat"])
    for version, same in (("0.33.0", True), ("0.32.0", False)):
        async with (
            run_stub("vllm", role="prefill", engine_version=version) as prefill,
            run_stub("vllm", role="decode", engine_version=version) as decode,
        ):
            asked = prefill_body("chat", return_token_ids=True)
            answer = orjson.loads((await send(client, prefill, PATHS["chat"], asked))[1])
            params = {**answer["kv_transfer_params"], "prompt_token_ids": answer["prompt_token_ids"]}
            cut = [{"role": "user", "content": "cut"}]
            body = {**BODIES["chat"], "messages": cut, "kv_transfer_params": params}
            _status, raw = await send(client, decode, PATHS["chat"], body)
            assert (text_of(raw) == text_of(expected)) is same
            assert bool(decode.state().violations) is not same


@pytest.mark.parametrize("ids", [None, [], ["x"], [-1], [1.5], 5])
async def test_a_prompt_that_is_none(client: aiohttp.ClientSession, ids: object) -> None:
    """Token ids that are none are refused by name."""
    async with run_stub("vllm", engine_version="0.33.0") as stub:
        body = {**BODIES["chat"], "kv_transfer_params": {"prompt_token_ids": ids}}
        status, raw = await send(client, stub, PATHS["chat"], body)
        assert (status, orjson.loads(raw)["error"]["param"]) == (400, "kv_transfer_params.prompt_token_ids")
