"""What an answer says besides its text, in one shape for all APIs, streamed or not."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpx
from attrs import define, field

from tests.live.questions import Question, events

TOLERANCE: Final = 1e-4
"""How far two logarithms of one probability may be apart.

A worker that is alone computes a token's logits in the batch of its prompt, one that fetched the prompt's KV cache in a
batch of another shape. Sums of float32 numbers depend on their order, which depends on the shape: the text is the same,
the sixth digit of a logarithm is not.
"""

Logprobs = list[tuple[str, float]]


@define
class Details:
    """The text, the calls of tools by their places, why it ended, the tokens' logarithms, and what it cost."""

    text: str = ""
    calls: dict[int, list[str]] = field(factory=dict)
    finish: str | None = None
    logprobs: Logprobs = field(factory=list)
    usage: dict[str, Any] = field(factory=dict)

    def call(self, place: int, name: str | None, arguments: str | None) -> None:
        """Add to a call."""
        known = self.calls.setdefault(place, ["", ""])
        known[0] += name or ""
        known[1] += arguments or ""

    def like(self, other: "Details") -> bool:
        """Whether both say the same, to the last token and within the tolerance."""
        exact = ("text", "calls", "finish", "usage")
        return (
            all(getattr(self, name) == getattr(other, name) for name in exact)
            and [token for token, _ in self.logprobs] == [token for token, _ in other.logprobs]
            and all(
                math.isclose(ours, theirs, abs_tol=TOLERANCE, rel_tol=0)
                for (_, ours), (_, theirs) in zip(self.logprobs, other.logprobs, strict=True)
            )
        )


def read(question: Question, answer: httpx.Response) -> Details:
    """The details of the answer to a question."""
    assert answer.status_code == 200, answer.text
    found = Details()
    whole = events(answer) if question.more.get("stream") else [answer.json()]
    _READERS[question.path](found, whole)
    return found


def _tokens(contents: Iterable[dict[str, Any]]) -> Logprobs:
    return [
        (entry["token"], entry["logprob"])
        for content in contents
        for entry in (content, *(content.get("top_logprobs") or ()))
    ]


def _completions(found: Details, whole: list[Any]) -> None:
    for piece in whole:
        for choice in piece["choices"]:
            found.text += choice["text"]
            found.finish = choice["finish_reason"] or found.finish
            told = choice["logprobs"] or {"tokens": (), "token_logprobs": (), "top_logprobs": ()}
            for token, value, others in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
                found.logprobs += [(token, value), *others.items()]
        found.usage = piece.get("usage") or found.usage


def _chat(found: Details, whole: list[Any]) -> None:
    for piece in whole:
        for choice in piece["choices"]:
            said = choice.get("delta", choice.get("message"))
            found.text += said.get("content") or ""
            found.finish = choice["finish_reason"] or found.finish
            found.logprobs += _tokens((choice["logprobs"] or {}).get("content") or ())
            for place, call in enumerate(said.get("tool_calls") or ()):
                function = call["function"]
                found.call(call.get("index", place), function.get("name"), function.get("arguments"))
        found.usage = piece.get("usage") or found.usage


def _responses(found: Details, whole: list[Any]) -> None:
    for event in whole[:-1]:
        match event["type"]:
            case "response.output_text.delta":
                found.text += event["delta"]
                found.logprobs += _tokens(event["logprobs"] or ())
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                found.call(event["output_index"], event["item"]["name"], None)
            case "response.function_call_arguments.delta":
                found.call(event["output_index"], None, event["delta"])
    last = whole[-1].get("response", whole[-1])
    ended = Details()
    for place, item in enumerate(last["output"]):
        for content in item.get("content") or ():
            ended.text += content["text"]
            ended.logprobs += _tokens(content["logprobs"] or ())
        if item["type"] == "function_call":
            ended.call(place, item["name"], item["arguments"])
    if len(whole) == 1:
        found.text, found.calls, found.logprobs = ended.text, ended.calls, ended.logprobs
    assert (found.text, found.calls) == (ended.text, ended.calls)  # a stream ends in what it said before
    found.finish, found.usage = last["status"], last["usage"]


def _messages(found: Details, whole: list[Any]) -> None:
    for event in whole:
        match event["type"]:
            case "message":
                for place, block in enumerate(event["content"]):
                    _block(found, place, block)
                found.finish, found.usage = event["stop_reason"], event["usage"]
            case "content_block_start":
                _block(found, event["index"], event["content_block"] | {"input": None})
            case "content_block_delta" if event["delta"]["type"] == "input_json_delta":
                found.call(event["index"], None, event["delta"]["partial_json"])
            case "content_block_delta":
                found.text += event["delta"]["text"]
            case "message_start":
                found.usage |= {"at the start": event["message"]["usage"]}
            case "message_delta":
                found.usage |= event["usage"]
                found.finish = event["delta"]["stop_reason"]


def _block(found: Details, place: int, block: dict[str, Any]) -> None:
    found.text += block.get("text", "")
    if block["type"] == "tool_use":
        found.call(place, block["name"], str(block["input"] or ""))


_READERS: Final[dict[str, Callable[[Details, list[Any]], None]]] = {
    "/v1/completions": _completions,
    "/v1/chat/completions": _chat,
    "/v1/responses": _responses,
    "/v1/messages": _messages,
}
