"""Every kind of fault, on every leg of every engine and on every API."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
import orjson
import pytest
from attrs import frozen

from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.dispatch.embedded.stub.faults import KINDS
from tests.stub.pairs import APIS, BODIES, PATHS, Answer, frames, paired, prefill_body, relay, send, text_of
from tests.stub.support import CHAT, context_body, hand_over

pytestmark = pytest.mark.anyio

Ask = Callable[[], Awaitable[Answer]]

LEGS = ["vllm prefill", "vllm decode", "sglang prefill", "sglang decode", "trtllm prefill", "trtllm decode"]
STREAMED = ["end_without_done", "error_event", "wrong_content_type"]


@frozen
class Leg:
    """The worker that has to fail, the one that it works with, and how to ask for the leg."""

    stub: Stub
    other: Stub
    ask: Ask
    again: Ask


@pytest.fixture(params=LEGS)
async def leg(request: pytest.FixtureRequest, client: aiohttp.ClientSession) -> AsyncIterator[Leg]:
    """One leg of a pair, ready to be asked for; what the other worker has to do for it is done."""
    engine, name = request.param.split()
    async with AsyncExitStack() as stack:
        prefill = await stack.enter_async_context(run_stub(engine, role="prefill"))
        decode = await stack.enter_async_context(run_stub(engine, role="decode", failure_seconds=0))
        stub, other = (prefill, decode) if name == "prefill" else (decode, prefill)
        match request.param:
            case "vllm prefill":
                body = prefill_body("chat")
            case "vllm decode":
                body = await relay(client, prefill, "chat")
            case "trtllm prefill":
                body = context_body(CHAT)
            case "trtllm decode":
                body = await hand_over(client, prefill, PATHS["chat"], CHAT)
            case _:
                body = paired(prefill, "chat")
                partner = asyncio.ensure_future(send(client, other, PATHS["chat"], body))
                stack.callback(partner.cancel)
                await other.until(lambda state: state.held_blocks > 0)

        async def ask() -> Answer:
            return await send(client, stub, PATHS["chat"], body)

        async def again() -> Answer:
            return await send(client, stub, "/v1/chat/completions", {})

        yield Leg(stub, other, ask, again)


def kept(*kinds: str) -> list[str]:
    """The kinds of faults that hit every request."""
    return [kind for kind in KINDS if kind not in (*STREAMED, "no_handoff", *kinds)]


@pytest.mark.parametrize("kind", kept("hang", "stall", "slow", "refuse"))
async def test_a_leg_fails_as_told(leg: Leg, kind: str) -> None:
    """The fault comes on that leg's worker alone, is counted there, and is nobody's misuse."""
    leg.stub.add_fault(kind, status=503)
    status, raw = 0, b""
    try:
        status, raw = await leg.ask()
    except aiohttp.ClientError:
        assert kind == "die_before_headers"
    match kind:
        case "status":
            assert (status, b"cannot serve" in raw) == (503, True)
        case "garbage":
            assert (status, raw[:6]) == (200, b"<html>")
        case "die_after_headers":
            assert (status, raw) == (200, b"")
        case "cut_mid_event" | "exit":
            assert (status, raw[:1], raw[-1:] == b"}") == (200, b"{", False)
    state = await leg.stub.until(lambda state: state.running == 0)
    assert state.violations == leg.other.state().violations == {}
    assert (state.faulted > 0) is (kind not in ("status", "garbage"))
    assert state.leaked_blocks == 0
    if kind == "exit":
        with pytest.raises(aiohttp.ClientConnectorError):
            await leg.again()
    else:
        assert (await leg.again())[0] == 400, "only one request is hit"


async def test_a_leg_is_refused(leg: Leg) -> None:
    """Connections are refused until the fault is cleared; then the leg is answered."""
    leg.stub.add_fault("refuse")
    with pytest.raises(aiohttp.ClientConnectorError):
        await leg.ask()
    leg.stub.clear_faults()
    assert (await leg.ask())[0] == 200


@pytest.mark.parametrize("kind", ["hang", "stall", "slow"])
async def test_a_leg_hangs(leg: Leg, kind: str) -> None:
    """A leg that hangs or is slow is answered in the end as if nothing had been."""
    leg.stub.add_fault(kind, seconds=0.01)
    asked = asyncio.ensure_future(leg.ask())
    await leg.stub.until(lambda state: state.running == 1 and not leg.stub.faults)
    leg.stub.clear_faults()
    assert (await asked)[0] == 200
    assert leg.stub.state().violations == {}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", [*STREAMED, "cut_mid_event", "exit", "die_after_headers"])
async def test_a_stream_fails_as_told(client: aiohttp.ClientSession, engine: str, api: str, kind: str) -> None:
    """Streams of all APIs break where they were told to, each in its own way."""
    async with run_stub(engine) as stub:
        _status, whole = await send(client, stub, PATHS[api], BODIES[api])
        stub.add_fault(kind, after=4)
        status, raw = await send(client, stub, PATHS[api], {**BODIES[api], "stream": True})
        assert status == 200
        end = {"messages": b"message_stop", "responses": b"event: response.completed"}.get(api, b"[DONE]")
        end = b"event: response.incomplete" if (engine, api) == ("sglang", "responses") else end
        match kind:
            case "wrong_content_type":
                assert text_of(raw) == text_of(whole)
            case "die_after_headers":
                assert raw == b""
            case "end_without_done":
                assert (text_of(raw), end in raw) == (text_of(whole), False)
            case "error_event" if (engine, api) != ("vllm", "responses"):
                assert (len(frames(raw)), b"rror" in raw) == (5 if api in ("messages", "responses") else 6, True)
                assert (end in raw) is (end == b"[DONE]")
            case _:
                assert (raw.count(b"\n\n"), raw.endswith(b"\n\n"), end in raw) == (4, False, False)
        state = await stub.until(lambda state: state.running == 0)
        broken = kind not in STREAMED or (engine, api, kind) == ("vllm", "responses", "error_event")
        assert (state.faulted, state.violations) == (int(broken), {})


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("api", APIS)
async def test_a_status_has_the_envelope_of_its_api(client: aiohttp.ClientSession, engine: str, api: str) -> None:
    """A worker that is told to decline does so in the shape in which it would by itself."""
    async with run_stub(engine) as stub:
        stub.add_fault("status", status=503)
        status, raw = await send(client, stub, PATHS[api], BODIES[api])
    answer = orjson.loads(raw)
    assert status == 503
    assert (answer.get("type") == "error") is (api == "messages")
    assert ("object" in answer) is (engine == "sglang" and api in ("completions", "chat"))
