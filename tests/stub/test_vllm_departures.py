"""What becomes of held blocks when a client leaves, or a leg is refused."""

import asyncio

import aiohttp
import pytest

from plugins.dispatch.embedded.stub import HandoffCounts, Stub, run_stub
from tests.stub.pairs import PATHS, prefill_body, relay, send

pytestmark = pytest.mark.anyio

Pair = tuple[Stub, Stub]


async def test_a_client_that_leaves_the_prefill_leaves_nothing(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """A prefill leg that is dropped before its answer holds nothing."""
    prefill, _decode = vllm_pair
    prefill.add_fault("slow", seconds=60)
    asked = asyncio.ensure_future(send(client, prefill, PATHS["chat"], prefill_body("chat")))
    await prefill.until(lambda state: state.running == 1)
    asked.cancel()
    state = await prefill.until(lambda state: state.aborted == 1)
    assert (state.held_blocks, state.handoffs) == (0, HandoffCounts())


@pytest.mark.parametrize("fault", ["hang", "slow"])
@pytest.mark.parametrize("version", ["0.25.0", "0.32.0"])
async def test_a_client_that_leaves_the_decode_frees_the_prefill(
    client: aiohttp.ClientSession, fault: str, version: str
) -> None:
    """A decode leg that is dropped makes the prefill worker free the blocks, before or after they were fetched."""
    async with (
        run_stub("vllm", role="prefill", engine_version=version) as prefill,
        run_stub("vllm", role="decode", engine_version=version) as decode,
    ):
        await drop(client, prefill, decode, fault)


async def drop(client: aiohttp.ClientSession, prefill: Stub, decode: Stub, fault: str) -> None:
    """Begin a decode leg, drop it, and see what the prefill worker holds after it."""
    decode.add_fault(fault, seconds=60)
    body = await relay(client, prefill, "chat")
    asked = asyncio.ensure_future(send(client, decode, PATHS["chat"], body))
    await decode.until(lambda state: state.running == 1 and not decode.faults)
    if fault == "slow":
        await prefill.until(lambda state: state.held_blocks == 0)
    asked.cancel()
    await decode.until(lambda state: state.aborted == 1)
    state = await prefill.until(lambda state: state.held_blocks == 0)
    assert state.handoffs == (HandoffCounts(released=1) if fault == "hang" else HandoffCounts(fetched=1))
    assert state.leaked_blocks == 0


@pytest.mark.parametrize(("version", "released"), [("0.25.0", 0), ("0.26.0", 1)])
@pytest.mark.parametrize("cause", ["status", "refusal"])
async def test_a_refused_decode_frees_the_prefill(
    client: aiohttp.ClientSession, version: str, released: int, cause: str
) -> None:
    """A decode leg that is refused makes newer releases tell the prefill worker; then the handoff is no good."""
    async with (
        run_stub("vllm", role="prefill", engine_version=version) as prefill,
        run_stub("vllm", role="decode", engine_version=version) as decode,
    ):
        body = await relay(client, prefill, "chat")
        if cause == "status":
            decode.add_fault("status", status=503)
        status, _raw = await send(client, decode, PATHS["chat"], {**body, **({} if cause == "status" else {"n": 0})})
        assert status in (400, 503)
        await asyncio.gather(*decode.engine._errands)
        assert prefill.state().handoffs == HandoffCounts(held=1 - released, released=released)


async def test_a_released_handoff_is_used_up(client: aiohttp.ClientSession, vllm_pair: Pair) -> None:
    """After a refusal the same handoff gives nonsense: the prefill has to be done again."""
    prefill, decode = vllm_pair
    body = await relay(client, prefill, "chat")
    decode.add_fault("status", status=503)
    await send(client, decode, PATHS["chat"], body)
    await prefill.until(lambda state: state.held_blocks == 0)
    await send(client, decode, PATHS["chat"], body)
    assert decode.state().violations == {"handoff_used_twice": 1}
