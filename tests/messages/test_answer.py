"""A whole chat completion as a message, checked with the models of Anthropic's own library."""

from typing import Any

import orjson
import pytest
from anthropic.types import Message

from plugins.messages.answer import message_from
from plugins.slots import WorkerRejection
from tests.messages.bodies import RECORDED, TOOL


def message(body: bytes, *stops: str) -> Message:
    """What a client reads."""
    return Message.model_validate(message_from(body, "claude", stops), strict=True, extra="forbid")


def answer(finish: str | None = "stop", usage: Any = None, **said: Any) -> bytes:
    """A chat completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **said}}
    return orjson.dumps({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage})


def called(arguments: Any, given: str | None = "call_1") -> dict[str, Any]:
    """A tool call."""
    return {"id": given, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def test_a_text() -> None:
    """Under the name that the client gave the model."""
    said = message(answer(content="Hi"))
    assert said.id.startswith("msg_")
    assert (said.type, said.role, said.model) == ("message", "assistant", "claude")
    assert [block.to_dict() for block in said.content] == [{"type": "text", "text": "Hi"}]
    assert (said.stop_reason, said.stop_sequence) == ("end_turn", None)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thoughts_come_first(field: str) -> None:
    """Then the text, then the calls; thinking has a signature, as clients send none back without one."""
    said = message(answer("tool_calls", content="Hi", tool_calls=[called('{"city":"Paris"}')], **{field: "hm"}))
    thinking, text, tool = said.content
    assert thinking.type == "thinking"
    assert thinking.thinking == "hm"
    assert thinking.signature
    assert text.type == "text"
    assert tool.to_dict() == {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Paris"}}


def test_an_answer_without_content_has_an_empty_text() -> None:
    """A message without blocks is none that clients expect."""
    assert [block.to_dict() for block in message(answer()).content] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize(
    ("finish", "matched", "reason", "stop"),
    [
        ("stop", {}, "end_turn", None),
        ("stop", {"stop_reason": "."}, "stop_sequence", "."),
        ("stop", {"matched_stop": "."}, "stop_sequence", "."),
        ("stop", {"matched_stop": 2}, "end_turn", None),
        ("stop", {"stop_reason": "<|im_end|>"}, "end_turn", None),
        ("length", {"stop_reason": "."}, "max_tokens", None),
        ("tool_calls", {}, "tool_use", None),
        ("content_filter", {}, "refusal", None),
    ],
)
def test_why_it_ended(finish: str, matched: dict[str, Any], reason: str, stop: str | None) -> None:
    """A stop sequence is named where the worker told it and the client asked for it."""
    body = orjson.loads(answer(finish, content="Hi"))
    body["choices"][0] |= matched
    said = message(orjson.dumps(body), ".", "!")
    assert (said.stop_reason, said.stop_sequence) == (reason, stop)


@pytest.mark.parametrize(
    ("finish", "reason"), [("stop", "tool_use"), ("tool_calls", "tool_use"), ("length", "max_tokens")]
)
def test_a_call_is_a_reason_to_stop(finish: str, reason: str) -> None:
    """VLLM ends a call that was asked for by name with stop."""
    assert message(answer(finish, tool_calls=[called("{}")])).stop_reason == reason


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, (0, 0, 0)),
        ({"prompt_tokens": 34, "completion_tokens": 2}, (34, 0, 2)),
        ({"prompt_tokens": 34, "completion_tokens": 2, "prompt_tokens_details": None}, (34, 0, 2)),
        ({"prompt_tokens": 34, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 32}}, (2, 32, 2)),
        ({"prompt_tokens": 4, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}, (0, 5, 2)),
        ({"prompt_tokens": "x", "prompt_tokens_details": {"cached_tokens": None}}, (0, 0, 0)),
    ],
)
def test_tokens_are_counted_as_anthropic_does(usage: Any, counted: tuple[int, int, int]) -> None:
    """Those that a cache had are not among those of the input."""
    used = message(answer(content="Hi", usage=usage)).usage
    assert (used.input_tokens, used.cache_read_input_tokens, used.output_tokens) == counted
    assert used.cache_creation_input_tokens == 0


@pytest.mark.parametrize("given", [None, "", "twice"])
def test_every_call_has_an_id_of_its_own(given: str | None) -> None:
    """Also where the worker gave none, or the same one again."""
    said = message(answer("tool_calls", tool_calls=[called("{}", "twice"), called("", given)]))
    first, second = (block.to_dict() for block in said.content)
    assert first["id"] == "twice"
    assert str(second["id"]).startswith("toolu_")
    assert second["input"] == {}


def test_a_call_that_the_limit_cut_is_left_out() -> None:
    """Nobody could run it."""
    said = message(answer("length", content="Hi", tool_calls=[called('{"city": "Par')]))
    assert [block.type for block in said.content] == ["text"]
    assert said.stop_reason == "max_tokens"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"finish_reason": "stop"}]}',
        answer(None, content="Hi"),
        answer("abort", content="Hi"),
        answer(content=["Hi"]),
        answer(tool_calls=[called("no JSON")]),
        answer(tool_calls=[called("[]")]),
        answer(tool_calls=[{}]),
        answer(tool_calls=["x"]),
        answer(reasoning=["x"]),
    ],
)
def test_what_is_no_answer_is_an_error(body: bytes) -> None:
    """No reason to stop is made up."""
    with pytest.raises(WorkerRejection) as raised:
        message(body)
    assert raised.value.status == 502


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_answers_of_real_engines_can_be_told(engine: str) -> None:
    """A stop sequence and a tool call, as each of them tells it."""
    stopped = message((RECORDED / f"{engine}_stop.json").read_bytes(), ".")
    assert stopped.content[0].to_dict() == {"type": "text", "text": "1"}
    assert (stopped.stop_sequence == ".") == (engine != "llamacpp")  # which does not tell
    used = message((RECORDED / f"{engine}_tools_auto.json").read_bytes())
    assert used.usage.input_tokens + (used.usage.cache_read_input_tokens or 0) > 300
    if engine != "sglang":  # recorded without its parser of tool calls
        (block,) = used.content
        assert block.type == "tool_use"
        assert block.name == TOOL["name"]
        assert block.input == {"city": "Paris"}
        assert used.stop_reason == "tool_use"
