"""OpenAI's own library, and requests of Codex, against workers that only have the chat API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
from openai.types.responses import ResponseStreamEvent

from tests.dispatch.scripted import Script, ScriptedWorker, scripted
from tests.e2e.programs import kernel, pools
from tests.e2e.test_messages_over_chat import TOO_LONG, answering, streaming, until_ready
from tests.messages.bodies import chunk
from tests.messages.test_answer import answer
from tests.messages.test_stream import FAULTS
from tests.responses.items import CALL, SPACE, TOOL, output, recorded_request
from tests.responses.test_stream import SAID, WHOLE

pytestmark = pytest.mark.anyio

EVENTS = openai.AsyncStream[ResponseStreamEvent]
ASKED: dict[str, Any] = {"model": "stub", "input": "Weather in Paris?", "tools": [TOOL, SPACE]}


@asynccontextmanager
async def served(folder: Path, script: Script) -> AsyncIterator[tuple[openai.AsyncOpenAI, ScriptedWorker]]:
    """A client of a kernel, and its one worker; in the end nothing is held."""
    async with scripted(script) as worker:
        with kernel(folder, pools(worker.url)) as started:
            await worker.until(lambda: worker.probes > 0)
            async with openai.AsyncOpenAI(base_url=f"{started.url}/v1", api_key="none", max_retries=0) as client:
                yield client, worker
            assert started.metric('kernel_requests_in_flight{endpoint="responses"}') == 0
            assert started.metric('kernel_reservations{model="stub",role="generation"}') == 0


def body(worker: ScriptedWorker) -> Any:
    """What the worker was asked."""
    assert worker.seen[-1].line.startswith("POST /v1/chat/completions ")
    return orjson.loads(worker.seen[-1].body)


async def test_whole_and_streamed_answers(tmp_path: Path) -> None:
    """In a tool loop, with the library's own helper for streams, and as Codex asks."""
    async with served(tmp_path, answering(answer(content="Sunny."))) as (client, worker):
        said = await client.responses.create(**ASKED | {"input": [{"role": "user", "content": "q"}, CALL, output()]})
        assert said.output_text == "Sunny."
        assert [message["role"] for message in body(worker)["messages"]] == ["user", "assistant", "tool"]

        worker.script = streaming(WHOLE)
        async with client.responses.stream(**ASKED) as events:
            final = await events.get_final_response()
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]

        for name in ("codex", "codex_tool_loop"):
            sent = recorded_request(name) | {"model": "stub"}
            answered = await client.post("/responses", cast_to=object, body=sent, stream=True, stream_cls=EVENTS)
            kinds = [event.type async for event in answered]
            assert kinds[-1] == "response.completed"
            assert {"exec_command", "multi_agent_v1__wait_agent"} <= {
                tool["function"]["name"] for tool in body(worker)["tools"]
            }


async def test_streams_that_fail_are_errors(tmp_path: Path) -> None:
    """They end with an error and `response.failed`, and never as if they were complete."""
    async with served(tmp_path, streaming(WHOLE)) as (client, worker):
        for ending in (SAID[3], chunk({"content": "x"})[:-9], *FAULTS.values()):
            await until_ready(client.base_url.join("/"))
            worker.script = streaming(b"".join(SAID[:4]), ending)
            seen = []
            try:
                async for event in await client.responses.create(**ASKED, stream=True):
                    seen.append(event.type)  # noqa: PERF401
            except openai.APIError:
                seen.append("raised")
            assert seen[0] == "response.created"
            assert seen[-1] in ("raised", "response.failed")
            assert not {"response.completed", "response.incomplete", "response.output_text.done"} & {*seen}


async def test_what_is_refused(tmp_path: Path) -> None:
    """By the worker, in its words and with the code that agents know; and before it, with the reason."""
    async with served(tmp_path, answering(orjson.dumps(TOO_LONG), "400 Bad")) as (client, worker):
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                await client.responses.create(**ASKED, stream=stream)
            assert refused.value.code == "context_length_exceeded"
        asked = len(worker.seen)
        with pytest.raises(openai.BadRequestError, match=r"tools\.0: a tool of type 'file_search'"):
            await client.responses.create(**ASKED | {"tools": [{"type": "file_search", "vector_store_ids": []}]})
        assert len(worker.seen) == asked
