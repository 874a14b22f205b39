"""The turns of a conversation as chat messages."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from plugins.chat.reading import Data, joined, objects, refusal, text_in
from plugins.messages.content import SAYABLE, parts_of
from plugins.messages.system import system_prompt, texts_of

_FAILED: Final = "Tool execution failed: "
_GAP: Final = "\n\n"
_ROLES: Final = frozenset(("user", "assistant", "system"))


def chat_messages(data: Data) -> list[Data]:
    """The field `system` and all turns, in order; what is system at the start becomes one message.

    Raises:
        InvalidRequest: 400, there is something that chat has no words for.
    """
    system = system_prompt(data.get("system"))
    messages: list[Data] = []
    known: set[str] = set()
    for turn, where in objects(data.get("messages"), "messages"):
        role, content, place = turn.get("role"), turn.get("content"), f"{where}.content"
        if role not in _ROLES:
            raise refusal(f"{where}.role", "expected user, assistant or system")
        if role == "system":
            texts = [text for text in texts_of(content, place) if text]
            if messages:
                messages.append({"role": "system", "content": _GAP.join(texts)})
            else:
                system += texts
        elif content.__class__ is str:
            messages.append({"role": role, "content": content})
        elif role == "user":
            messages += _user(content, place, known)
        else:
            messages.append(_assistant(content, place, known))
    if not messages:
        raise refusal("messages", "expected at least one turn of the user")
    return [{"role": "system", "content": _GAP.join(system)}, *messages] if system else messages


def _user(content: Any, place: str, known: set[str]) -> Iterator[Data]:
    """A user's turn: first what its tools gave, as chat wants it, then the rest with the tools' images before it."""
    results = False
    images: list[Data] = []
    parts: list[Data] = []
    for block, where in objects(content, place):
        match block.get("type"):
            case "tool_result":
                results = True
                text, pictures = _result(block, where)
                if block["tool_use_id"] not in known:
                    raise refusal(f"{where}.tool_use_id", "no tool_use with this id came before")
                images += pictures
                yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}
            case "tool_use" | "thinking" | "redacted_thinking" as kind:
                raise refusal(where, f"a block of type {kind} belongs into an assistant's turn")
            case _:
                parts += parts_of(block, where)
    if images or parts or not results:
        yield {"role": "user", "content": joined(images + parts)}


def _result(block: Data, place: str) -> tuple[str, list[Data]]:
    """What a tool gave: its text, and its images, for which a tool's message has no place."""
    text_in(block, "tool_use_id", place, empty=False)
    content = block.get("content")
    if content is None or content.__class__ is str:
        parts = [{"type": "text", "text": content or ""}]
    else:
        parts = []
        for inner, where in objects(content, f"{place}.content"):
            parts += parts_of(inner, where)
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return (_FAILED if block.get("is_error") else "") + text, [part for part in parts if part["type"] != "text"]


def _assistant(content: Any, place: str, known: set[str]) -> Data:
    """An assistant's turn; its texts are one, since a chat worker wrote them as one."""
    parts: list[Data] = []
    thoughts: list[str] = []
    calls: list[Data] = []
    for block, where in objects(content, place):
        match block.get("type"):
            case "thinking":
                thoughts.append(text_in(block, "thinking", where))
            case "redacted_thinking":
                raise refusal(where, "only the service that made a redacted_thinking block can read it")
            case "tool_use":
                calls.append(_call(block, where))
                known.add(block["id"])
            case kind if kind in SAYABLE:
                parts += parts_of(block, where)
            case "tool_result":
                raise refusal(where, "a block of type tool_result belongs into a user's turn")
            case _:
                parts_of(block, where)
    plain = all(part["type"] == "text" for part in parts)
    if calls and not plain:
        raise refusal(place, "an assistant's turn cannot have images beside a tool_use")
    text = "".join(part["text"] for part in parts) if plain else parts
    message: Data = {"role": "assistant", "content": text or (None if calls else "")}
    if reasoning := "".join(thoughts):
        # vLLM and TensorRT-LLM read the one, SGLang and llama.cpp the other
        message |= {"reasoning": reasoning, "reasoning_content": reasoning}
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Data, place: str) -> Data:
    given = block.get("input")
    if given.__class__ is not dict:
        raise refusal(f"{place}.input", "expected an object", "invalid_type")
    function = {"name": text_in(block, "name", place, empty=False), "arguments": _dump(given, f"{place}.input")}
    return {"id": text_in(block, "id", place, empty=False), "type": "function", "function": function}


def _dump(value: Any, place: str) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        raise refusal(place, "nested too deeply") from None
