"""What tests of the stub workers share: bodies, a front end in a few lines, and reading streams."""

from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from plugins.dispatch.embedded.stub import Stub

Body = dict[str, Any]

COMPLETION: Body = {"model": "stub", "prompt": "one two three four"}
CHAT: Body = {
    "model": "stub",
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two three"}],
}
PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
BODIES = {"completions": COMPLETION, "chat": CHAT}


async def post(client: aiohttp.ClientSession, stub: Stub, path: str, body: object, **headers: str) -> tuple[int, Any]:
    """Send a JSON body and give the status and the decoded answer."""
    async with client.post(stub.url + path, json=body, headers=headers) as response:
        return response.status, orjson.loads(await response.read())


async def events(client: aiohttp.ClientSession, stub: Stub, path: str, body: Body) -> list[Any]:
    """Ask for a stream and give its events, decoded; the end marker must be last and is left out."""
    async with client.post(stub.url + path, json={**body, "stream": True}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        raw = await response.read()
    frames = raw.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [orjson.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def texts(answer: Mapping[str, Any]) -> list[str]:
    """Give the text of each choice of a whole answer."""
    return [choice["message"]["content"] if "message" in choice else choice["text"] for choice in answer["choices"]]


def streamed_texts(chunks: list[Any]) -> list[str]:
    """Give the text of each choice of a stream."""
    pieces: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            text = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            pieces[choice["index"]] = pieces.get(choice["index"], "") + text
    return [pieces[index] for index in sorted(pieces)]


def context_body(body: Body, number: int = 1 << 41, **params: object) -> Body:
    """Make the body of a context leg, as a front end does."""
    asked = {"request_type": "context_only", "disagg_request_id": number, "schedule_style": 0, **params}
    return {**body, "stream": False, "stream_options": None, "disaggregated_params": asked}


def generation_body(body: Body, answer: Mapping[str, Any]) -> Body:
    """Make the body of a generation leg out of the client's body and the context answer."""
    usage = {key: answer["usage"][key] for key in answer["usage"]}
    params = {
        **answer["choices"][0]["disaggregated_params"],
        "request_type": "generation_only",
        "schedule_style": 0,
        "ctx_usage": usage,
    }
    made = {**body, "disaggregated_params": params}
    if "prompt" in body:
        made["prompt"] = answer["prompt_token_ids"]
    elif answer.get("prompt_token_ids_b64"):
        made["prompt_token_ids_b64"] = answer["prompt_token_ids_b64"]
    else:
        made["prompt_token_ids"] = answer["prompt_token_ids"]
    return made


async def hand_over(client: aiohttp.ClientSession, context: Stub, path: str, body: Body, number: int = 1 << 41) -> Body:
    """Run the context leg and give the body of the generation leg."""
    status, answer = await post(client, context, path, context_body(body, number))
    assert status == 200, answer
    return generation_body(body, answer)
