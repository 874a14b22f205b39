"""What tests of vLLM and SGLang pairs share: one question on every API, both legs of it, and reading what comes."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp
import orjson

from plugins.dispatch.embedded.stub import Stub
from tests.stub.support import Body

WORDS = " ".join(f"word{number}" for number in range(70))
TURN = [{"role": "user", "content": WORDS}]
ROOM = (1 << 62) + 1
EXTERNAL = "vllm:prompt_tokens_by_source_totalexternal_kv_transfer"
LOCAL = "vllm:prompt_tokens_by_source_totallocal_compute"

PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
LIMITS = {api: "max_output_tokens" if api == "responses" else "max_tokens" for api in PATHS}
BODIES: dict[str, Body] = {
    "completions": {"model": "stub", "prompt": WORDS, "max_tokens": 6},
    "chat": {"model": "stub", "messages": TURN, "max_tokens": 6},
    "responses": {"model": "stub", "input": WORDS, "max_output_tokens": 6},
    "messages": {"model": "stub", "messages": TURN, "max_tokens": 6},
}
APIS = list(PATHS)

Answer = tuple[int, bytes]


async def send(client: aiohttp.ClientSession, stub: Stub, path: str, body: object, **headers: str) -> Answer:
    """Send a JSON body and give the status and the raw answer, or as much of it as came."""
    raw = b""
    async with client.post(stub.url + path, json=body, headers=headers) as response:
        with suppress(aiohttp.ClientPayloadError):
            async for chunk in response.content.iter_any():
                raw += chunk
        return response.status, raw


def clean(*stubs: Stub) -> bool:
    """Whether workers hold, leak and run nothing, and none was asked for something wrong."""
    states = [stub.state() for stub in stubs]
    return not any(
        (state.held_blocks, state.leaked_blocks, state.running, state.violations) != (0, 0, 0, {}) for state in states
    )


async def metrics(client: aiohttp.ClientSession, stub: Stub) -> dict[str, float]:
    """Give the counters of a worker, by name and own label."""
    async with client.get(stub.url + "/metrics") as response:
        assert response.status == 200
        lines = (await response.text()).splitlines()
    counted = {}
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            label = next((part for part in name.split(",") if "source=" in part or "mode=" in part), "")
            counted[name.partition("{")[0] + label.rpartition("=")[2].strip('"}')] = float(value)
    return counted


def frames(raw: bytes) -> list[tuple[str, Any]]:
    """Give the events of a stream as names and decoded data; the marker `[DONE]` stays text."""
    events = []
    for frame in raw.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines())
        if "data" in fields:
            data = fields["data"]
            events.append((fields.get("event", ""), orjson.loads(data) if data.startswith("{") else data))
    return events


def text_of(raw: bytes) -> str:
    """Give the text of a whole answer or of a stream, of any API."""
    if raw.startswith(b"{"):
        return _whole_text(orjson.loads(raw))
    return "".join(_delta(data) for _name, data in frames(raw) if isinstance(data, dict))


def last_of(raw: bytes) -> Any:
    """Give the last event of a stream that is no marker, decoded."""
    return next(data for _name, data in reversed(frames(raw)) if isinstance(data, dict))


def prefill_body(api: str, **changes: object) -> Body:
    """Make the body of a vLLM prefill leg."""
    asked = {"do_remote_decode": True, "do_remote_prefill": False}
    return {**BODIES[api], LIMITS[api]: 1, "stream": False, "kv_transfer_params": asked, **changes}


async def relay(client: aiohttp.ClientSession, prefill: Stub, api: str, **changes: object) -> Body:
    """Run the prefill leg of a vLLM pair and give the body of the decode leg."""
    status, raw = await send(client, prefill, PATHS[api], prefill_body(api))
    assert status == 200, raw
    return {**BODIES[api], "kv_transfer_params": orjson.loads(raw)["kv_transfer_params"], **changes}


def paired(prefill: Stub, api: str, room: object = ROOM, **changes: object) -> Body:
    """Make the body that both halves of an SGLang pair are sent."""
    meeting = {"bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.side_port, "bootstrap_room": room}
    return {**BODIES[api], **meeting, **changes}


async def send_both(
    client: aiohttp.ClientSession, pair: tuple[Stub, Stub], path: str, body: object, other: object = None
) -> tuple[Answer, Answer]:
    """Send a body to both halves of a pair at once, or another one to the decode half."""
    prefill, decode = pair
    first, second = await asyncio.gather(
        send(client, prefill, path, body), send(client, decode, path, body if other is None else other)
    )
    return first, second


def _whole_text(answer: Mapping[str, Any]) -> str:
    if "choices" in answer:
        choice = answer["choices"][0]
        text: str = choice["message"]["content"] if "message" in choice else choice["text"]
        return text
    part = answer["output"][0]["content"][0] if "output" in answer else answer["content"][0]
    text = part["text"]
    return str(text)


def _delta(data: Mapping[str, Any]) -> str:
    text: str = ""
    match data:
        case {"type": "response.output_text.delta", "delta": str(text)}:
            return text
        case {"type": "content_block_delta", "delta": {"text": str(text)}}:
            return text
        case {"choices": [{"delta": dict(delta)}, *_]}:
            return str(delta.get("content", ""))
        case {"choices": [{"text": str(text)}, *_]}:
            return text
        case _:
            return ""
