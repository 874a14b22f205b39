"""A chat completion, whole or streamed, as a response; read with OpenAI's own library."""

import re
from typing import Any

import orjson
import pytest
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from kernel import COMPLETED, FAILED, Outcome
from plugins.chat.stream import ChatStream
from plugins.responses.answer import response_from
from plugins.responses.events import ResponseEvents
from plugins.responses.tools import namespaces_of
from plugins.slots import WorkerRejection
from tests.messages.bodies import DONE, RECORDED, call, chunk, parsed, usage
from tests.messages.test_answer import answer, called
from tests.messages.test_stream import FAULTS
from tests.responses.items import SPACE, TOOL, request

ASKED = request(tools=[TOOL, SPACE], instructions="be brief", metadata={"a": "b"}, stream=True)
SAID = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning": "hm, "}),
    chunk({"reasoning": "caf\u00e9"}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo\n\ndata: [DONE]\n\n"}),
    chunk(call(0, "", "get_weather", "t0")),
    chunk(call(0, '{"city":')),
    chunk(call(1, '{"city": "Rome"}', "agents__spawn", "t1")),
    chunk(call(0, ' "Paris"}')),
    chunk({}, "tool_calls"),
    usage(40, 7, 32),
    DONE,
)
WHOLE = b"".join(SAID)
_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def teller() -> ChatStream:
    """What tells a chat stream."""
    return ChatStream(ResponseEvents(ASKED, "gpt", namespaces_of(ASKED)))


def translate(*chunks: bytes) -> bytes:
    """The events of a chat stream that is whole and without fault."""
    stream = teller()
    told = b"".join([stream.push(chunk) for chunk in chunks])
    assert stream.check() is None
    return told + stream.close(Outcome(COMPLETED))


def read(stream: bytes) -> Response:
    """The response at the end; each event is one of the library's models and is taken by its helper, in order."""
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    last: Any = None
    for number, data in enumerate(parsed(stream)):
        assert data["sequence_number"] == number
        last = _EVENT.validate_python(data)
        state.handle_event(last)
    assert last.type in ("response.completed", "response.incomplete")
    response: Response = last.response
    return response


def normal(value: Any, ids: dict[str, str] | None = None) -> Any:
    """JSON with each of its own ids replaced by the order in which it came, and without the time."""
    ids = {} if ids is None else ids
    match value:
        case dict():
            return {key: normal(inner, ids) for key, inner in value.items() if key != "created_at"}
        case list():
            return [normal(inner, ids) for inner in value]
        case str() if value.startswith(("resp_", "rs_", "msg_", "fc_")):
            return ids.setdefault(value, f"id {len(ids)}")
    return value


def unnamed(stream: bytes) -> bytes:
    """The events without the random part of their ids and without the time."""
    return re.sub(rb'_[0-9a-f]{24}|"created_at":\d+', b"", stream)


def test_a_whole_answer() -> None:
    """Reasoning, text and mixed calls, one of them in a namespace."""
    said = read(translate(*SAID))
    assert (said.model, said.status, said.instructions, said.metadata) == ("gpt", "completed", "be brief", {"a": "b"})
    assert [item.type for item in said.output] == ["reasoning", "message", "function_call", "function_call"]
    assert said.output_text == "Hello\n\ndata: [DONE]\n\n"
    reasoning, _, first, second = (item.to_dict() for item in said.output)
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "hm, caf\u00e9"}]
    assert (first["call_id"], first["name"], first["arguments"]) == ("t0", "get_weather", '{"city": "Paris"}')
    assert (second["name"], second["namespace"]) == ("spawn", "agents")
    assert "namespace" not in first
    assert said.usage is not None
    assert (said.usage.input_tokens, said.usage.input_tokens_details.cached_tokens) == (40, 32)
    assert (said.usage.output_tokens, said.usage.total_tokens) == (7, 47)


def test_ids_in_the_stream_are_those_of_the_end() -> None:
    """And each item ends as it stands there; every delta belongs to an item that is open."""
    stream = [*parsed(translate(WHOLE))]
    final = stream[-1]["response"]["output"]
    done = [event["item"] for event in stream if event["type"] == "response.output_item.done"]
    added = [event["item"]["id"] for event in stream if event["type"] == "response.output_item.added"]
    assert done == final
    assert added == [item["id"] for item in final]
    for event in stream:
        if "item_id" in event:
            assert event["item_id"] == added[event["output_index"]]
    assert {event["response"]["id"] for event in stream if "response" in event} == {stream[0]["response"]["id"]}


def test_the_grammar_of_a_text() -> None:
    """All events of an item and its part, in their order."""
    told = translate(SAID[0], SAID[3], SAID[4], chunk({}, "stop"), usage(4, 2), DONE)
    assert [event["type"].removeprefix("response.") for event in parsed(told)] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip


def test_streamed_and_whole_answers_are_equal() -> None:
    """But for the ids and the time."""
    calls = [called('{"city": "Paris"}', "t0"), called('{"city": "Rome"}', "t1")]
    calls[1]["function"]["name"] = "agents__spawn"
    tokens = {"prompt_tokens": 40, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 32}}
    text = "Hello\n\ndata: [DONE]\n\n"
    body = answer("tool_calls", tokens, content=text, reasoning="hm, caf\u00e9", tool_calls=calls)
    whole = response_from(body, ASKED, "gpt", namespaces_of(ASKED))
    Response.model_validate(whole)
    *_, last = parsed(translate(WHOLE))
    assert normal(whole) == normal(last["response"])


def test_every_cut_gives_the_same_events() -> None:
    """Wherever a network cuts the stream in two, and if it cuts everywhere."""
    whole = unnamed(translate(WHOLE))
    for cut in range(len(WHOLE) + 1):
        assert unnamed(translate(WHOLE[:cut], WHOLE[cut:])) == whole
    assert unnamed(translate(*(WHOLE[at : at + 1] for at in range(len(WHOLE))))) == whole


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_is_not_complete_says_so(finish: str, reason: str) -> None:
    """Streamed and whole, also of the item that was cut."""
    streamed = read(translate(SAID[3], chunk({}, finish), DONE)).to_dict()
    whole = response_from(answer(finish, content="Hel"), ASKED, "gpt", {})
    for response in (streamed, whole):
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": reason}
        assert response["output"][0]["status"] == "incomplete"  # type: ignore[index]


def test_an_answer_without_content_has_no_items() -> None:
    """And is complete."""
    assert read(translate(SAID[0], chunk({}, "stop"), DONE)).output == []
    assert response_from(answer(), ASKED, "gpt", {})["output"] == []


def test_a_stream_that_ends_anywhere_never_looks_whole() -> None:
    """There is no last event, whatever the stream was cut in."""
    for cut in range(len(WHOLE) - len(DONE) + len("data: [DONE]")):
        stream = teller()
        told = stream.push(WHOLE[:cut])
        error = stream.check()
        told += stream.close(Outcome(FAILED, error))
        assert isinstance(error, WorkerRejection)
        assert b"response.completed" not in told


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_stream_is_an_error(fault: str) -> None:
    """What came before it is told, and no item ends."""
    stream = teller()
    told = stream.push(SAID[0] + SAID[3] + FAULTS[fault] + DONE)
    error = stream.check()
    assert isinstance(error, WorkerRejection)
    assert [event["type"] for event in parsed(told + stream.close(Outcome(FAILED, error)))][2:] == [
        "response.output_item.added", "response.content_part.added", "response.output_text.delta",
    ]  # fmt: skip


@pytest.mark.parametrize("body", [b"{}", answer(None, content="x"), answer("abort", content="x")])
def test_what_is_no_answer_is_an_error(body: bytes) -> None:
    """No end is made up."""
    with pytest.raises(WorkerRejection):
        response_from(body, ASKED, "gpt", {})


@pytest.mark.parametrize("kind", ["stream_usage", "tools_named_stream"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_streams_of_real_engines_can_be_told(engine: str, kind: str) -> None:
    """Text with its usage, and a tool call as each of them streams it."""
    said = read(translate((RECORDED / f"{engine}_{kind}.sse").read_bytes()))
    assert said.usage is not None
    assert said.usage.input_tokens >= 34
    (item,) = said.output
    if kind == "tools_named_stream" and engine != "sglang":  # recorded without its parser of tool calls
        assert item.type == "function_call"
        assert orjson.loads(item.arguments) == {"city": "Paris"}
    else:
        assert item.type == "message"
        assert said.output_text
