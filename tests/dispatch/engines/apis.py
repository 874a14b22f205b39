"""One question on each of the four APIs, and reading the answers of all of them."""

from collections.abc import Mapping
from typing import Any

import orjson

from kernel import Endpoint
from plugins.dispatch.apis import apis_of
from plugins.dispatch.embedded.stub import run_stub
from plugins.dispatch.engine import Engine
from plugins.dispatch.engines.openai import OpenAIEngine
from plugins.dispatch.engines.sglang import SglangEngine
from plugins.dispatch.engines.trtllm import TrtllmEngine
from plugins.dispatch.engines.vllm import VllmEngine
from plugins.endpoints import CHAT_COMPLETIONS, COMPLETIONS, MESSAGES, RESPONSES
from tests.dispatch.engines.pairs import CHAT, COMPLETION, WORDS
from tests.dispatch.support import Answer, ask, exchange_of, running, single
from tests.stub.pairs import frames

SETUPS: dict[str, tuple[Engine, dict[str, Any]]] = {
    "nixl": (VllmEngine(), {"bidirectional": True}),
    "nixl_push": (VllmEngine(connector="nixl_push"), {"connector": "nixl-push"}),
    "mooncake": (VllmEngine(connector="mooncake"), {"connector": "mooncake"}),
    "sglang": (SglangEngine(), {}),
    "trtllm": (TrtllmEngine(), {}),
    "trtllm_packed": (TrtllmEngine(gen_tokids_ctxbytes=True, body="msgpack"), {"require_msgpack": True}),
    "trtllm_first": (TrtllmEngine(schedule="generation_first"), {}),
}
BODIES: dict[Endpoint, dict[str, Any]] = {
    COMPLETIONS: dict(COMPLETION),
    CHAT_COMPLETIONS: dict(CHAT),
    RESPONSES: {"model": "m", "input": WORDS, "max_output_tokens": 9},
    MESSAGES: {"model": "m", "messages": [{"role": "user", "content": WORDS}], "max_tokens": 9},
}
CELLS = [
    (setup, api)
    for setup in SETUPS
    for api in BODIES
    if api.name in apis_of(SETUPS[setup][0]) and (setup, api) != ("mooncake", MESSAGES)
]
"""Every setup with every API over which its workers hand over."""

EVERYTHING = OpenAIEngine(
    apis=("completions", "chat_completions", "responses", "messages", "count_tokens", "tokenize", "detokenize")
)


async def alone(engine: str, endpoint: Endpoint, *requests: Mapping[str, Any]) -> Answer:
    """What one worker that serves whole requests answers in the end."""
    async with run_stub(engine, model="m") as stub, running(single(stub.url, engine=EVERYTHING)) as dispatch:
        for request in requests:
            answer = await ask(dispatch, exchange_of(orjson.dumps(request), endpoint=endpoint))
    return answer


def counts_of(body: bytes) -> dict[str, Any]:
    """The counts of an answer of any API, streamed or not: the last that it has."""
    if body.startswith(b"{"):
        usage: dict[str, Any] = orjson.loads(body)["usage"]
        return usage
    found: dict[str, Any] = {}
    for _name, data in frames(body):
        if isinstance(data, dict):
            found = data.get("usage") or (data.get("response") or {}).get("usage") or found
    return found


def names_of(body: bytes) -> list[str]:
    """The kinds of a stream's events in order, each once in a row."""
    names: list[str] = []
    for name, data in frames(body):
        kind = name or (data if isinstance(data, str) else data["object"])
        if names[-1:] != [kind]:
            names.append(kind)
    return names
