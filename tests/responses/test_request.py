"""How a request of the Responses API is told in chat."""

from typing import Any

import pytest

from plugins.responses.request import chat_request
from plugins.responses.tools import namespaces_of
from tests.responses.items import (
    CALL,
    IMAGE,
    PARAMETERS,
    PICTURE,
    SPACE,
    TOOL,
    asked,
    output,
    recorded_request,
    refusal,
    request,
    said,
    thought,
)

CALLED = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
GIVEN = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
FUNCTION = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS},
}
SPAWN = {**FUNCTION, "function": {**FUNCTION["function"], "name": "agents__spawn"}}  # type: ignore[dict-item]
ONE = {"role": "assistant", "content": None, "tool_calls": [CALLED]}
HM = {"reasoning": "hm", "reasoning_content": "hm"}
Q = {"role": "user", "content": "q"}


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([said("user", "q")], [Q]),
        ([{"role": "user", "content": "q"}], [Q]),
        ([said("user", "a", "b")],
         [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]),
        ([said("user", "q"), said("assistant", "a", "b")], [Q, {"role": "assistant", "content": "ab"}]),
        ([said("system", "a"), said("developer", "b", "c"), said("user", "q")],
         [{"role": "system", "content": "a\n\nb\n\nc"}, Q]),
        ([said("user", "q"), said("developer", "a")], [Q, {"role": "system", "content": "a"}]),
        ([said("user", "q"), CALL, output()], [Q, ONE, GIVEN]),
        ([said("user", "q"), thought("h", "m"), said("assistant", "a"), CALL, output()],
         [Q, {"role": "assistant", "content": "a", **HM, "tool_calls": [CALLED]}, GIVEN]),
        ([said("user", "q"), CALL, CALL | {"call_id": "c2"}, output(), output("x", "c2")],
         [Q, {"role": "assistant", "content": None, "tool_calls": [CALLED, CALLED | {"id": "c2"}]}, GIVEN,
          GIVEN | {"tool_call_id": "c2", "content": "x"}]),
        ([said("user", "q"), said("assistant", "a"), said("assistant", "b")],
         [Q, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]),
        ([said("user", "q"), CALL, output([{"type": "input_text", "text": "t"}, IMAGE]), said("user", "see?")],
         [Q, ONE, GIVEN | {"content": "t"},
          {"role": "user", "content": [PICTURE, {"type": "text", "text": "see?"}]}]),
        ([said("user", "q"), CALL, output([IMAGE]), said("assistant", "a")],
         [Q, ONE, GIVEN | {"content": ""},
          {"role": "user", "content": [PICTURE]}, {"role": "assistant", "content": "a"}]),
        ([said("user", "q"), thought("a", "b", field="summary")],
         [Q, {"role": "assistant", "content": "", "reasoning": "a\n\nb", "reasoning_content": "a\n\nb"}]),
        ([said("user", "q"), thought()], [Q]),
        ([said("user", "q"), CALL | {"name": "spawn", "namespace": "agents"}],
         [Q, {"role": "assistant", "content": None, "tool_calls": [
             CALLED | {"function": {"name": "agents__spawn", "arguments": '{"city":"Paris"}'}}]}]),
    ],
)  # fmt: skip
def test_items_are_messages(items: list[Any], messages: list[Any]) -> None:
    """Those of one turn of the assistant are one message, as a chat worker wrote it."""
    assert asked(*items) == messages


def test_instructions_come_first() -> None:
    """Before what is system at the start."""
    assert asked(said("developer", "b"), said("user", "q"), instructions="a") == [
        {"role": "system", "content": "a\n\nb"}, Q,
    ]  # fmt: skip
    assert asked() == [{"role": "user", "content": "Say hello"}]


@pytest.mark.parametrize(
    ("fields", "chat"),
    [
        ({"max_output_tokens": 3}, {"max_completion_tokens": 3}),
        ({"temperature": 0, "top_p": 0.5, "user": "u"}, {"temperature": 0, "top_p": 0.5, "user": "u"}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
         {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}}),
        ({"tools": [TOOL]}, {"tools": [FUNCTION]}),
        ({"tools": [SPACE]}, {"tools": [SPAWN]}),
        ({"tools": [{"type": "web_search"}]}, {}),
        ({"tools": [TOOL], "tool_choice": "required"}, {"tools": [FUNCTION], "tool_choice": "required"}),
        ({"tools": [TOOL], "parallel_tool_calls": True}, {"tools": [FUNCTION]}),
        ({"tools": [TOOL], "parallel_tool_calls": False}, {"tools": [FUNCTION], "parallel_tool_calls": False}),
        ({"tools": [SPACE], "tool_choice": {"type": "function", "name": "spawn", "namespace": "agents"}},
         {"tools": [SPAWN], "tool_choice": {"type": "function", "function": {"name": "agents__spawn"}}}),
        ({"tools": [TOOL, SPACE], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [
            {"type": "function", "name": "get_weather"}]}}, {"tools": [FUNCTION], "tool_choice": "required"}),
        ({"store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "metadata": {}}, {}),
    ],
)  # fmt: skip
def test_a_field_of_the_request(fields: dict[str, Any], chat: dict[str, Any]) -> None:
    """Each is said as chat workers understand it, or left out where it means nothing to them."""
    plain = chat_request(request())
    assert chat_request(request(**fields)) == plain | chat


@pytest.mark.parametrize(
    ("data", "place", "word"),
    [
        (request(said("user", "q") | {"role": "tool"}), "input.0.role", "developer"),
        (request(said("system", "q")), "input", "message of the user"),
        (request({"type": "item_reference", "id": "x"}), "input.0", "not kept"),
        (request({"type": "web_search_call"}), "input.0", "web_search_call"),
        (request({"role": "user", "content": [{"type": "input_file"}]}), "input.0.content.0", "input_file"),
        (request({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}), "input.0.content.0", "files"),
        (request({"role": "user", "content": [IMAGE | {"image_url": "file:///x"}]}),
         "input.0.content.0.image_url", "address"),
        (request({"role": "assistant", "content": [IMAGE]}), "input.0.content", "only text"),
        (request({"role": "user"}), "input.0.content", "array"),
        (request("x"), "input.0", "object"),
        (request(CALL | {"arguments": {}}), "input.0.arguments", "string"),
        (request(output(1)), "input.0.output", "array"),
        (request(conversation="c"), "conversation", "not kept"),
        (request(top_logprobs=1), "top_logprobs", "none"),
        *((request(max_output_tokens=limit), "max_output_tokens", "at least 1") for limit in (0, -1, "9", 1.5, True)),
        (request(text={"format": {"type": "grammar"}}), "text.format.type", "json_schema"),
        (request(text={"format": {"type": "json_schema"}}), "text.format.name", "string"),
        (request(tools=[{"type": "file_search"}]), "tools.0", "file_search"),
        (request(tools=[{"type": "custom", "name": "x"}]), "tools.0", "custom"),
        (request(tools=[TOOL, TOOL]), "tools", "same name"),
        (request(tools=[TOOL | {"parameters": []}]), "tools.0.parameters", "object"),
        (request(tools=[SPACE | {"tools": [SPACE]}]), "tools.0.tools.0", "namespace"),
        (request(tools=[TOOL], tool_choice="some"), "tool_choice", "required"),
        (request(tools=[TOOL], tool_choice={"type": "web_search"}), "tool_choice.type", "server"),
        (request(tools=[TOOL], tool_choice={"type": "function", "name": "x"}), "tool_choice.name", "none of the tools"),
        (request(tool_choice="required"), "tool_choice", "no tool"),
    ],
)  # fmt: skip
def test_what_chat_cannot_say_is_refused(data: dict[str, Any], place: str, word: str) -> None:
    """With its place and the reason."""
    message = refusal(data)
    assert message.startswith(f"{place}: ")
    assert word in message


@pytest.mark.parametrize("name", ["codex", "codex_tool_loop", "codex_vllm", "sdk_stream", "litellm"])
def test_requests_of_real_clients_can_be_said(name: str) -> None:
    """Codex' functions arrive, those of its namespace too, without the search that the server would run."""
    data = recorded_request(name)
    chat = chat_request(data)
    assert chat["messages"][-1]["role"] in ("user", "tool")
    if name.startswith("codex"):
        names = [tool["function"]["name"] for tool in chat["tools"]]
        assert {"exec_command", "multi_agent_v1__spawn_agent"} <= {*names}
        assert namespaces_of(data)["multi_agent_v1__spawn_agent"] == ("multi_agent_v1", "spawn_agent")
        assert chat["messages"][0]["role"] == "system"
    if name == "codex_tool_loop":
        assert [message["role"] for message in chat["messages"]] == ["system", "user", "user", "assistant", "tool"]
