"""A pair of TensorRT-LLM's workers behind dispatch, and what one worker would answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from attrs import frozen

from plugins.dispatch.embedded.stub import Stub, run_stub
from plugins.dispatch.plugin import Dispatch
from plugins.endpoints import CHAT_COMPLETIONS
from tests.dispatch.support import ONCE, Answer, ask, exchange_of, relay, running, single

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Tell me of 水"}], "max_tokens": 9}


@frozen
class Relay:
    """One context worker, one generation worker, and dispatch."""

    context: Stub
    generation: Stub
    dispatch: Dispatch

    async def ask(self, data: dict[str, Any], endpoint: Any = CHAT_COMPLETIONS, **extra: Any) -> Answer:
        """Send one request."""
        return await ask(self.dispatch, exchange_of(orjson.dumps({**data, **extra}), endpoint=endpoint))


@asynccontextmanager
async def relay_in(body: str) -> AsyncIterator[Relay]:
    """The relay, with bodies in one format, without retries."""
    strict = body == "msgpack"
    async with (
        run_stub("trtllm", role="context", require_msgpack=strict) as context,
        run_stub("trtllm", role="generation", require_msgpack=strict) as generation,
        running(relay([context.url], [generation.url], body=body), retry=ONCE) as dispatch,
    ):
        yield Relay(context, generation, dispatch)


def text_of(body: bytes) -> str:
    """The text of the first choice of an answer, streamed or not."""
    if not body.startswith(b"data: "):
        choice = orjson.loads(body)["choices"][0]
        text: str = choice["message"]["content"] if "message" in choice else choice["text"]
        return text
    *events, done, end = body.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    choices = [choice for event in events for choice in orjson.loads(event[6:])["choices"]]
    return "".join(choice["delta"].get("content") or "" if "delta" in choice else choice["text"] for choice in choices)


async def aggregated(data: dict[str, Any], endpoint: Any, **extra: Any) -> bytes:
    """What one worker that serves whole requests answers."""
    async with run_stub("trtllm") as stub, running(single(stub.url)) as dispatch:
        return (await ask(dispatch, exchange_of(orjson.dumps({**data, **extra}), endpoint=endpoint))).body
