"""The items of a request's input as chat messages."""

from typing import Final

from attrs import define, field

from plugins.chat.reading import Data, joined, objects, refusal, text_in
from plugins.responses.content import parts_of, plain
from plugins.responses.tools import flat_name

_GAP: Final = "\n\n"
_ROLES: Final = frozenset(("user", "assistant", "system", "developer"))


def chat_messages(data: Data) -> list[Data]:
    """The field `instructions` and all items, in order; what is system or developer at the start is one message.

    Raises:
        InvalidRequest: 400, there is something that chat has no words for.
    """
    turns = _Turns()
    instructions, given = data.get("instructions"), data.get("input")
    if instructions is not None:
        turns.system += [plain(parts_of(instructions, "instructions"), _GAP, "instructions")]
    if isinstance(given, str):
        turns.messages.append({"role": "user", "content": given})
    else:
        for item, place in objects(given, "input"):
            turns.add(item, place)
    turns.end_turn()
    turns.tell_images()
    if not turns.messages:
        raise refusal("input", "expected at least one message of the user")
    system = _GAP.join(filter(None, turns.system))
    return [{"role": "system", "content": system}, *turns.messages] if system else turns.messages


@define(eq=False)
class _Turns:
    """Messages so far, and what an assistant's turn that is not over yet has; its items are one chat message.

    `images` are those that tools gave, which follow what all tools of a turn gave.
    """

    system: list[str] = field(factory=list)
    messages: list[Data] = field(factory=list)
    thoughts: str = ""
    text: str | None = None
    calls: list[Data] = field(factory=list)
    images: list[Data] = field(factory=list)

    def add(self, item: Data, place: str) -> None:
        match item.get("type", "message"):
            case "message":
                self._message(item, place)
            case "reasoning":
                self._continue_turn(anew=self.text is not None or bool(self.calls))
                self.thoughts += _thoughts(item, place)
            case "function_call":
                self._continue_turn(anew=False)
                name = flat_name(text_in(item, "name", place, empty=False), item.get("namespace"))
                function = {"name": name, "arguments": text_in(item, "arguments", place)}
                given = text_in(item, "call_id", place, empty=False)
                self.calls.append({"id": given, "type": "function", "function": function})
            case "function_call_output":
                self._output(item, place)
            case "item_reference":
                raise refusal(place, "answers are not kept between requests; send the item itself")
            case kind:
                reason = f"an item of type {kind!r:.64} has no equivalent for workers that only have the chat API"
                raise refusal(place, reason)

    def end_turn(self) -> None:
        """End the assistant's turn."""
        if self.thoughts or self.text is not None or self.calls:
            message: Data = {"role": "assistant", "content": self.text or (None if self.calls else "")}
            if self.thoughts:
                # vLLM and TensorRT-LLM read the one, SGLang and llama.cpp the other
                message |= {"reasoning": self.thoughts, "reasoning_content": self.thoughts}
            if self.calls:
                message["tool_calls"] = self.calls
            self.messages.append(message)
            self.thoughts, self.text, self.calls = "", None, []

    def tell_images(self) -> None:
        """Give the images of tools to the model, for which their own messages have no place."""
        if self.images:
            self.messages.append({"role": "user", "content": self.images})
            self.images = []

    def _continue_turn(self, *, anew: bool) -> None:
        self.tell_images()
        if anew:
            self.end_turn()

    def _message(self, item: Data, place: str) -> None:
        role, where = item.get("role"), f"{place}.content"
        if role not in _ROLES:
            raise refusal(f"{place}.role", "expected user, assistant, system or developer")
        parts = parts_of(item.get("content"), where)
        if role == "assistant":
            self._continue_turn(anew=self.text is not None or bool(self.calls))
            self.text = plain(parts, "", where)
        elif role == "user":
            self.end_turn()
            images, self.images = self.images, []
            self.messages.append({"role": "user", "content": joined(images + parts)})
        else:
            self._continue_turn(anew=True)
            text = plain(parts, _GAP, where)
            if self.messages:
                self.messages.append({"role": "system", "content": text})
            else:
                self.system.append(text)

    def _output(self, item: Data, place: str) -> None:
        self.end_turn()
        parts = parts_of(item.get("output"), f"{place}.output")
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        given = text_in(item, "call_id", place, empty=False)
        self.messages.append({"role": "tool", "tool_call_id": given, "content": text})
        self.images += [part for part in parts if part["type"] != "text"]


def _thoughts(item: Data, place: str) -> str:
    """What was thought, or the summary of it."""
    for name, gap in (("content", ""), ("summary", _GAP)):
        texts = [text_in(part, "text", where) for part, where in objects(item.get(name) or [], f"{place}.{name}")]
        if texts:
            return gap.join(texts)
    return ""
