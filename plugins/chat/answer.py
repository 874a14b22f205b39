"""A whole chat completion, as far as other APIs tell of it."""

import random
from collections.abc import Iterator
from typing import Any

import orjson
from attrs import field, frozen

from plugins.chat.reading import Data
from plugins.slots import WorkerRejection


@frozen
class Call:
    """A tool call: `given` is the worker's id for it, `arguments` the text of a JSON object."""

    given: Any
    name: str
    arguments: str


@frozen
class Answer:
    """What a worker said: `choice` has the reason for its end."""

    choice: Data
    usage: Any
    thinking: str
    text: str
    calls: list[Call] = field(factory=list)


def read_answer(body: bytes) -> Answer:
    """Read a chat completion. A call that the limit of tokens cut is left out, as nobody could run it.

    Raises:
        WorkerRejection: 502, it is none.
    """
    try:
        data = orjson.loads(body)
        choice = data["choices"][0]
        said = choice["message"]
        calls = [*_calls(said.get("tool_calls") or (), cut=choice.get("finish_reason") == "length")]
        return Answer(choice, data.get("usage"), text_of(reasoning_of(said)), text_of(said.get("content") or ""), calls)
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        raise malformed("the worker's answer is no chat completion") from None


def reasoning_of(said: Data) -> Any:
    """What a worker thought aloud; the field has two names, and some workers fill both."""
    return said.get("reasoning_content") or said.get("reasoning") or ""


def text_of(value: Any) -> str:
    """A value that has to be text.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, str):
        raise TypeError(type(value).__name__)
    return value


def cached_of(usage: Any) -> tuple[int, int, int]:
    """Tokens of the prompt, those of them that a cache had, and tokens of the answer."""
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = _number(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return _number(usage.get("prompt_tokens")), cached, _number(usage.get("completion_tokens"))


def new_id(prefix: str) -> str:
    """A new id for a message, an item or a call."""
    return f"{prefix}{random.getrandbits(96):024x}"  # a name and no secret


def call_id(given: Any, seen: set[str], prefix: str) -> str:
    """The id of a tool call: the worker's own, as templates may want it back, unless there is none or it repeats."""
    name = given if isinstance(given, str) and given and given not in seen else new_id(prefix)
    seen.add(name)
    return name


def malformed(message: str) -> WorkerRejection:
    """What is said of a worker's answer that cannot be understood."""
    return WorkerRejection(502, message, "worker_error")


def _calls(calls: Any, *, cut: bool) -> Iterator[Call]:
    for call in calls:
        function = call["function"]
        arguments = function.get("arguments") or "{}"
        text = orjson.dumps(arguments).decode() if isinstance(arguments, dict) else text_of(arguments)
        if _is_object(text):
            yield Call(call.get("id"), text_of(function["name"]), text)
        elif not cut:
            raise malformed("the worker called a tool with arguments that are no JSON object")


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
