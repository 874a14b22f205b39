"""Tools, the names that chat has for them, and how they may be chosen."""

from typing import Any, Final

from plugins.chat.reading import Data, objects, refusal, text_in

GAP: Final = "__"
"""Between the name of a namespace and that of a tool in it; chat has no namespaces."""

_UNSEEN: Final = ("web_search",)
"""How the types of tools begin that are left out: Codex always sends one, and does without."""

_MODES: Final = frozenset(("auto", "none", "required"))


def flat_name(name: str, namespace: Any) -> str:
    """The name of a tool in chat."""
    return f"{namespace}{GAP}{name}" if isinstance(namespace, str) and namespace else name


def namespaces_of(data: Data) -> dict[str, tuple[str, str]]:
    """For the chat name of each tool in a namespace, the namespace and its name there."""
    found = {}
    for space in data.get("tools") or ():
        if space.get("type") == "namespace":
            for tool in space["tools"]:
                found[flat_name(tool["name"], space["name"])] = (space["name"], tool["name"])
    return found


def tool_fields(data: Data) -> Data:
    """The fields `tools`, `tool_choice` and `parallel_tool_calls` of the chat request, as far as they are needed.

    Raises:
        InvalidRequest: 400, a tool cannot be offered, or the choice cannot be made.
    """
    tools = _tools(data.get("tools") or [], "tools", None)
    names = [tool["function"]["name"] for tool in tools]
    if len({*names}) < len(names):
        raise refusal("tools", "two tools have the same name")
    choice = data.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = {
            flat_name(text_in(tool, "name", place), tool.get("namespace"))
            for tool, place in objects(choice.get("tools"), "tool_choice.tools")
        }
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
        choice = choice.get("mode", "auto")
    if not tools:
        if choice not in (None, "auto", "none"):
            raise refusal("tool_choice", "names no tool that is offered")
        return {}
    fields: Data = {"tools": tools}
    if choice is not None:
        fields["tool_choice"] = _choice(choice, names)
    if data.get("parallel_tool_calls") is False:
        fields["parallel_tool_calls"] = False
    return fields


def _choice(choice: Any, names: list[str]) -> Any:
    if isinstance(choice, str):
        if choice not in _MODES:
            raise refusal("tool_choice", "expected auto, none, required or a tool")
        return choice
    if choice.get("type") != "function":
        raise refusal("tool_choice.type", "a tool that the server runs is not available")
    name = flat_name(text_in(choice, "name", "tool_choice"), choice.get("namespace"))
    if name not in names:
        raise refusal("tool_choice.name", "names none of the tools")
    return {"type": "function", "function": {"name": name}}


def _tools(tools: Any, place: str, namespace: str | None) -> list[Data]:
    offered: list[Data] = []
    for tool, where in objects(tools, place):
        kind = tool.get("type")
        if kind == "function":
            offered.append(_function(tool, where, namespace))
        elif kind == "namespace" and namespace is None:
            name = text_in(tool, "name", where, empty=False)
            offered += _tools(tool.get("tools"), f"{where}.tools", name)
        elif not str(kind).startswith(_UNSEEN):
            reason = f"a tool of type {kind!r:.64} is not available with workers that only have the chat API"
            raise refusal(where, f"{reason}; send functions")
    return offered


def _function(tool: Data, place: str, namespace: str | None) -> Data:
    function: Data = {"name": flat_name(text_in(tool, "name", place, empty=False), namespace)}
    if tool.get("description") is not None:
        function["description"] = text_in(tool, "description", place)
    parameters = tool.get("parameters")
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise refusal(f"{place}.parameters", "expected an object", "invalid_type")
        function["parameters"] = parameters
    if tool.get("strict"):
        function["strict"] = True
    return {"type": "function", "function": function}
