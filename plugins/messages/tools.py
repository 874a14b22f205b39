"""Tools and how they may be chosen."""

from typing import Any, Final

from plugins.chat.reading import Data, objects, one_of, refusal, text_in

_SERVER: Final = ("web_search", "web_fetch", "code_execution", "tool_search_tool_", "advisor_", "mcp_toolset")
"""How the types of tools begin that Anthropic's own servers run."""

_CHOICES: Final = frozenset(("auto", "any", "tool", "none"))


def tool_fields(data: Data) -> Data:
    """The fields `tools`, `tool_choice` and `parallel_tool_calls` of the chat request, as far as they are needed.

    Raises:
        InvalidRequest: 400, a tool cannot be offered, or the choice cannot be made.
    """
    choice = data.get("tool_choice")
    if choice is not None and choice.__class__ is not dict:
        raise refusal("tool_choice", "expected an object", "invalid_type")
    kind = "auto" if choice is None else choice.get("type")
    if kind not in _CHOICES:
        raise refusal("tool_choice.type", f"expected one of {one_of(_CHOICES)}")
    tools = _tools(data.get("tools") or [], drop=kind == "none")
    if not tools:
        if kind in ("any", "tool"):
            raise refusal("tool_choice", f"type {kind} needs tools")
        return {}
    fields: Data = {"tools": tools}
    if choice is not None:
        fields["tool_choice"] = _choice(kind, choice, [tool["function"]["name"] for tool in tools])
        if choice.get("disable_parallel_tool_use"):
            fields["parallel_tool_calls"] = False
    return fields


def _choice(kind: str, choice: Data, names: list[str]) -> Any:
    if kind != "tool":
        return {"any": "required"}.get(kind, kind)
    name = text_in(choice, "name", "tool_choice")
    if name not in names:
        raise refusal("tool_choice.name", "names none of the tools")
    return {"type": "function", "function": {"name": name}}


def _tools(tools: Any, *, drop: bool) -> list[Data]:
    """The tools that the client itself runs; the server's are dropped where none is to be used."""
    offered = []
    for tool, place in objects(tools, "tools"):
        if not _is_servers(tool):
            offered.append(_tool(tool, place))
        elif not drop:
            raise refusal(place, "a tool that the server runs is not available; send tools with an input_schema")
    return offered


def _is_servers(tool: Data) -> bool:
    kind, name = tool.get("type"), tool.get("name")
    if kind in (None, "custom"):
        return "input_schema" not in tool and str(name).startswith(_SERVER)
    return str(kind).startswith(_SERVER)


def _tool(tool: Data, place: str) -> Data:
    schema = tool.get("input_schema")
    if schema.__class__ is not dict:
        raise refusal(f"{place}.input_schema", "expected an object; built-in tools are unknown to chat workers")
    function: Data = {"name": text_in(tool, "name", place, empty=False), "parameters": schema}
    if tool.get("description") is not None:
        function["description"] = text_in(tool, "description", place)
    if tool.get("strict"):
        function["strict"] = True
    return {"type": "function", "function": function}
