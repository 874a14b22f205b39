"""Anthropic's own library against workers that only have the chat API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import orjson
import pytest
from anthropic.types import Message, MessageParam, RawMessageStreamEvent

from tests.dispatch.scripted import Script, ScriptedWorker, Seen, scripted
from tests.e2e.programs import kernel, pools
from tests.messages.bodies import DONE, PIXEL, TOOL, USE, chunk, recorded_request
from tests.messages.test_answer import answer, called
from tests.messages.test_stream import FAULTS, SAID, WHOLE

pytestmark = pytest.mark.anyio

ASKED: list[MessageParam] = [{"role": "user", "content": "Weather in Paris?"}]
EVENTS = anthropic.AsyncStream[RawMessageStreamEvent]
TOO_LONG = {"error": {"code": 400, "type": "exceed_context_size_error", "message":
    "request (9031 tokens) exceeds the available context size (2048 tokens), try increasing it"}}  # fmt: skip


def streaming(*chunks: bytes) -> Script:
    """A script that streams the chunks, and breaks the connection unless they end as a stream does."""

    async def script(seen: Seen) -> None:
        await seen.begin_stream(*chunks)
        await (seen.end_stream() if chunks[-1].endswith(DONE) else seen.hang_up())

    return script


def answering(body: bytes, status: str = "200 OK") -> Script:
    """A script that answers at once."""
    return lambda seen: seen.answer(body, status)


@asynccontextmanager
async def served(folder: Path, script: Script) -> AsyncIterator[tuple[anthropic.AsyncAnthropic, ScriptedWorker]]:
    """A client of a kernel, and its one worker; in the end nothing is held."""
    async with scripted(script) as worker:
        with kernel(folder, pools(worker.url)) as started:
            await worker.until(lambda: worker.probes > 0)
            async with anthropic.AsyncAnthropic(base_url=started.url, api_key="none", max_retries=0) as client:
                yield client, worker
            assert started.metric('kernel_requests_in_flight{endpoint="messages"}') == 0
            assert started.metric('kernel_reservations{model="stub",role="generation"}') == 0


async def until_ready(address: object) -> None:
    """Wait until the kernel has a worker; one that broke a connection is asked for its health first."""
    async with asyncio.timeout(20), httpx.AsyncClient(base_url=str(address)) as client:
        while (await client.get("/health")).status_code != 200:
            pass


async def ask(client: anthropic.AsyncAnthropic, **fields: Any) -> Message:
    """Ask for one answer."""
    asked: dict[str, Any] = {"model": "stub", "max_tokens": 64, "messages": ASKED} | fields
    message: Message = await client.messages.create(**asked)
    return message


async def stream(client: anthropic.AsyncAnthropic, **fields: Any) -> Message:
    """Ask for a stream and let the library put it together."""
    asked: dict[str, Any] = {"model": "stub", "max_tokens": 64, "messages": ASKED} | fields
    async with client.messages.stream(**asked) as events:
        return await events.get_final_message()


def body(worker: ScriptedWorker) -> Any:
    """What the worker was asked."""
    assert worker.seen[-1].line.startswith("POST /v1/chat/completions ")
    return orjson.loads(worker.seen[-1].body)


async def test_a_tool_loop(tmp_path: Path) -> None:
    """The worker gets the tool, its call and its result; the client gets a call that it can run."""
    whole = answer("tool_calls", content=None, tool_calls=[called('{"city":"Paris"}')])
    async with served(tmp_path, answering(whole)) as (client, worker):
        said = await ask(client, tools=[TOOL], tool_choice={"type": "any"})
        assert said.stop_reason == "tool_use"
        (block,) = said.content
        assert block.to_dict() | {"caller": None} == USE | {"id": "call_1", "caller": None}
        assert body(worker)["tool_choice"] == "required"

        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
        result = {"type": "tool_result", "tool_use_id": "call_1", "content": [image]}
        turns = [*ASKED, {"role": "assistant", "content": said.content}, {"role": "user", "content": [result]}]
        await ask(client, tools=[TOOL], messages=turns)
        assert [message["role"] for message in body(worker)["messages"]] == ["user", "assistant", "tool", "user"]
        assert body(worker)["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city":"Paris"}'


async def test_a_stream(tmp_path: Path) -> None:
    """Thinking, text and two mixed calls, put together by the library."""
    async with served(tmp_path, streaming(WHOLE)) as (client, worker):
        said = await stream(client, thinking={"type": "adaptive"})
        assert [block.type for block in said.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert [block.input for block in said.content if block.type == "tool_use"] == [
            {"city": "Paris"},
            {"city": "Rome"},
        ]
        assert said.usage.cache_read_input_tokens == 32
        assert body(worker)["stream_options"]["include_usage"] is True
        assert body(worker)["chat_template_kwargs"] == {"enable_thinking": True}


async def test_a_request_of_claude_code(tmp_path: Path) -> None:
    """Its whole body, in the first turn of a session and in its tool loop."""
    async with served(tmp_path, streaming(WHOLE)) as (client, worker):
        for name in ("claude_code", "claude_code_tool_loop"):
            sent = recorded_request(name) | {"model": "stub"}
            answered = await client.post(
                "/v1/messages?beta=true", cast_to=object, body=sent, stream=True, stream_cls=EVENTS
            )
            kinds = [event.type async for event in answered]
            assert kinds[-1] == "message_stop"
            assert len(body(worker)["tools"]) == len(sent["tools"])
            assert "billing" not in str(body(worker))


async def test_streams_that_fail_are_errors(tmp_path: Path) -> None:
    """The library raises, and never sees a message end."""
    async with served(tmp_path, streaming(WHOLE)) as (client, worker):
        for ending in (SAID[3], chunk({"content": "x"})[:-9], *FAULTS.values()):
            await until_ready(client.base_url)
            worker.script = streaming(b"".join(SAID[:4]), ending)
            seen = []
            with pytest.raises(anthropic.APIError):  # noqa: PT012  # the events come before the error
                async with client.messages.stream(model="stub", max_tokens=64, messages=ASKED) as events:
                    async for event in events:
                        seen.append(event.type)  # noqa: PERF401
            assert "message_start" in seen
            assert not {"message_delta", "message_stop"} & {*seen}


@pytest.mark.parametrize("ask_for", [ask, stream])
async def test_a_prompt_that_is_too_long(tmp_path: Path, ask_for: Any) -> None:
    """Claude clients shorten their history when they read these words."""
    async with served(tmp_path, answering(orjson.dumps(TOO_LONG), "400 Bad")) as (client, _):
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await ask_for(client)


async def test_what_cannot_be_translated(tmp_path: Path) -> None:
    """No worker is asked, and the client reads why."""
    async with served(tmp_path, answering(answer())) as (client, worker):
        with pytest.raises(anthropic.BadRequestError, match=r"tools\.0: a tool that the server runs") as refused:
            await ask(client, tools=[{"type": "web_search_20250305", "name": "web_search"}])
        assert worker.seen == []
        assert refused.value.response.json()["error"]["type"] == "invalid_request_error"


async def test_an_answer_that_is_none(tmp_path: Path) -> None:
    """No reason to stop is made up for one that the worker broke off."""
    async with served(tmp_path, answering(answer("abort", content="Hi"))) as (client, _):
        with pytest.raises(anthropic.InternalServerError, match="did not bring the answer to an end"):
            await ask(client)
