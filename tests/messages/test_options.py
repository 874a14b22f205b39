"""How limits, sampling, tools, thinking and the form of the answer are asked for over the chat API."""

from typing import Any

import orjson
import pytest

from plugins.chat.offers import chat_offer
from plugins.messages.request import chat_request
from plugins.slots import InvalidRequest, Payload
from tests.messages.bodies import TOOL, recorded_request, refusal, request

FUNCTION = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather in a city", "parameters": TOOL["input_schema"]},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def added(**fields: Any) -> dict[str, Any]:
    """What fields of a request add to the chat request."""
    plain = chat_request(request())
    return {name: value for name, value in chat_request(request(**fields)).items() if plain.get(name) != value}


def test_a_plain_request() -> None:
    """Model, messages and the limit, and nothing that was not asked for."""
    assert chat_request(request()) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Say hello"}],
        "max_completion_tokens": 2048,
    }


@pytest.mark.parametrize(
    ("fields", "chat"),
    [
        ({"max_tokens": 1}, {"max_completion_tokens": 1}),
        ({"temperature": 0}, {"temperature": 0}),
        ({"top_p": 0.5, "top_k": 3}, {"top_p": 0.5, "top_k": 3}),
        ({"temperature": None}, {}),
        ({"stop_sequences": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"stop_sequences": []}, {}),
        ({"metadata": {"user_id": "u"}}, {"user": "u"}),
        ({"metadata": {}}, {}),
        ({"stream": False}, {}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
        ({"tools": []}, {}),
        ({"tools": [TOOL]}, {"tools": [FUNCTION]}),
        ({"tools": [TOOL | {"type": "custom", "cache_control": {}}]}, {"tools": [FUNCTION]}),
        ({"tools": [TOOL], "tool_choice": {"type": "auto"}}, {"tools": [FUNCTION], "tool_choice": "auto"}),
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, {"tools": [FUNCTION], "tool_choice": "required"}),
        ({"tools": [TOOL], "tool_choice": {"type": "none"}}, {"tools": [FUNCTION], "tool_choice": "none"}),
        ({"tools": [TOOL, SEARCH], "tool_choice": {"type": "none"}}, {"tools": [FUNCTION], "tool_choice": "none"}),
        ({"tool_choice": {"type": "none"}}, {}),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "get_weather"}},
         {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}),
        ({"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
         {"tools": [FUNCTION], "tool_choice": "auto", "parallel_tool_calls": False}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}},
         {"thinking_token_budget": 1024, "chat_template_kwargs": {"enable_thinking": True}}),
        ({"thinking": {"type": "adaptive"}}, {"chat_template_kwargs": {"enable_thinking": True}}),
        ({"thinking": {"type": "disabled"}}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ({"output_config": {"effort": "high"}}, {"chat_template_kwargs": {"reasoning_effort": "high"}}),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
         {"chat_template_kwargs": {"clear_thinking": False, "drop_thinking": False}}),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, {}),
        ({"thinking": {"type": "adaptive"}, "chat_template_kwargs": {"enable_thinking": False, "other": 1}},
         {"chat_template_kwargs": {"enable_thinking": False, "other": 1}}),
        ({"service_tier": "auto", "unheard_of": 1}, {}),
    ],
)  # fmt: skip
def test_a_field_of_the_request(fields: dict[str, Any], chat: dict[str, Any]) -> None:
    """Each is said as chat workers understand it, or left out where it means nothing to them."""
    assert added(**fields) == chat


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_a_schema_for_the_answer(place: str) -> None:
    """Under its present name and its first one."""
    form = {"type": "json_schema", "schema": {"type": "object"}}
    asked = added(**({place: {"format": form}} if place == "output_config" else {place: form}))
    assert asked["response_format"]["type"] == "json_schema"
    assert asked["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_a_clients_own_tool_may_have_a_servers_name() -> None:
    """As long as it brings a schema, it is the client that runs it."""
    assert added(tools=[TOOL | {"name": "web_search"}])["tools"][0]["function"]["name"] == "web_search"


@pytest.mark.parametrize(
    ("fields", "place", "word"),
    [
        ({"max_tokens": None}, "max_tokens", "missing"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": True}, "max_tokens", "integer"),
        ({"stop_sequences": "a"}, "stop_sequences", "array of strings"),
        ({"stop_sequences": [1]}, "stop_sequences", "array of strings"),
        ({"metadata": {"user_id": 1}}, "metadata.user_id", "string"),
        ({"tools": "x"}, "tools", "array"),
        ({"tools": [SEARCH]}, "tools.0", "server runs"),
        ({"tools": [{"name": "code_execution"}]}, "tools.0", "server runs"),
        ({"tools": [{"type": "mcp_toolset"}]}, "tools.0", "server runs"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.input_schema", "built-in"),
        ({"tools": [{"name": "x"}]}, "tools.0.input_schema", "object"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name", "string"),
        ({"tools": [TOOL | {"description": 1}]}, "tools.0.description", "string"),
        ({"tool_choice": "auto"}, "tool_choice", "object"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type", "any, auto, none, tool"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "needs tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name", "string"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name", "none of the tools"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "thinking.budget_tokens", "1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "thinking.budget_tokens", "less than max_tokens"),
        ({"thinking": {"type": "maybe"}}, "thinking.type", "adaptive"),
        ({"thinking": 1}, "thinking", "object"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format", "json_schema"),
        ({"output_format": 1}, "output_format", "json_schema"),
        ({"output_config": {"effort": 1}}, "output_config.effort", "string"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs", "object"),
        ({"mcp_servers": [{}]}, "mcp_servers", "MCP"),
        ({"container": "c"}, "container", "code execution"),
    ],
)
def test_what_is_wrong_or_not_to_be_had_is_refused(fields: dict[str, Any], place: str, word: str) -> None:
    """With its place and the reason."""
    message = refusal(request(**fields))
    assert message.startswith(f"{place}: ")
    assert word in message


@pytest.mark.parametrize(
    "name",
    ["claude_code", "claude_code_bare", "claude_code_tool_loop", "sdk_blocks", "sdk_tool_choice", "sdk_tool_result",
     "node_stream", "litellm"],
)  # fmt: skip
def test_requests_of_real_clients_can_be_said(name: str) -> None:
    """All their turns and tools arrive."""
    data = recorded_request(name)
    chat = chat_request(data)
    assert chat["max_completion_tokens"] == data["max_tokens"]
    assert [tool["function"]["name"] for tool in chat.get("tools", ())] == [t["name"] for t in data.get("tools", ())]
    roles = [message["role"] for message in chat["messages"] if message["role"] != "tool"]
    assert roles.count("assistant") == [turn["role"] for turn in data["messages"]].count("assistant")
    assert "billing" not in str(chat)


def test_turns_of_claude_code_keep_their_prefix() -> None:
    """The next request of its tool loop begins with the messages of the one before."""
    first, second = (
        chat_request(recorded_request("claude_code")),
        chat_request(recorded_request("claude_code_tool_loop")),
    )
    assert [m["role"] for m in first["messages"]] == ["system", "user", "system"]
    assert [m["role"] for m in second["messages"]] == ["system", "user", "system", "assistant", "tool"]
    assert first["chat_template_kwargs"] == second["chat_template_kwargs"]


@pytest.mark.parametrize("where", ["tool", "input", "kwargs"])
def test_what_is_nested_too_deeply_is_refused(where: str) -> None:
    """It could be read, but not be written again."""
    deep: dict[str, Any] = {}
    for _ in range(253):
        deep = {"a": deep}
    data = {
        "tool": request(tools=[TOOL | {"input_schema": deep}]),
        "input": request() | {"messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "n", "input": {"a": {"a": deep}}}]}]},
        "kwargs": request(chat_template_kwargs=deep),
    }[where]  # fmt: skip
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        chat_offer(Payload(b"", data), chat_request).translate()


def test_a_payload_is_the_chat_request_as_bytes() -> None:
    """So that it can be sent without being written again; the client's own stays what it was."""
    payload = Payload(b"", request())
    before = orjson.dumps(payload.data)
    asked = chat_offer(payload, chat_request).translate()
    assert orjson.loads(asked.encode()) == asked.data == chat_request(request())
    assert not asked.edited
    assert orjson.dumps(payload.data) == before
