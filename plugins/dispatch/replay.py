"""A whole answer as the stream that the client asked for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from attrs import define, field

_DONE: Final = b"data: [DONE]\n\n"
_HEAD: Final = ("id", "created", "model", "system_fingerprint")


def replay(answer: Mapping[str, Any], *, chat: bool, usage: bool) -> Iterator[bytes]:
    """The events of a stream that says what `answer` says, the end marker last.

    A chat opens each choice with its role and closes it with its finish reason, a completion says all at
    once. With `usage`, an event without choices carries the token counts.
    """
    kind = "chat.completion.chunk" if chat else "text_completion"
    head = {"object": kind, **{name: answer[name] for name in _HEAD if name in answer}}
    for position, choice in enumerate(answer["choices"]):
        index = choice.get("index", position)
        for part in _chat_parts(choice) if chat else ({"text": choice.get("text") or "", **_ending(choice)},):
            yield _event({**head, "choices": [{"index": index, **part}]})
    if usage:
        yield _event({**head, "choices": [], "usage": answer.get("usage")})
    yield _DONE


def _chat_parts(choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The role, what was said, and the ending of one choice."""
    message = {name: value for name, value in choice["message"].items() if value not in (None, "", [])}
    yield {"delta": {"role": message.pop("role", "assistant"), "content": ""}, "finish_reason": None}
    if "tool_calls" in message:
        message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(message["tool_calls"])]
    ending = _ending(choice)
    if message:
        logprobs = {name: ending.pop(name) for name in ("logprobs",) if name in ending}
        yield {"delta": message, **logprobs, "finish_reason": None}
    yield {"delta": {}, **ending}


def _ending(choice: Mapping[str, Any]) -> dict[str, Any]:
    return {name: choice[name] for name in ("logprobs", "finish_reason", "stop_reason") if name in choice}


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


@define(eq=False)
class Replayed:
    """A source for a stream whose chunks are all there already."""

    _chunks: Sequence[bytes]
    _next: int = field(default=0, init=False)

    def __aiter__(self) -> "Replayed":
        return self

    async def __anext__(self) -> bytes:
        if self._next == len(self._chunks):
            raise StopAsyncIteration
        self._next += 1
        return self._chunks[self._next - 1]
