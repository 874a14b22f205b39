"""What the live tests ask, over which API, and how the text is read out of the answer."""

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
from attrs import field, frozen

from tests.live.worker import MODEL

TOKENS: Final = 24
SECONDS: Final = 300.0


@frozen
class Question:
    """One API and stream mode: the body's part that is not the prompt, and what reads an answer's text."""

    name: str
    path: str
    prompt: Callable[[str], dict[str, Any]]
    text: Callable[[httpx.Response], str]
    limit: str = "max_tokens"
    more: Mapping[str, Any] = field(factory=dict)

    def body(self, words: str, tokens: int = TOKENS) -> dict[str, Any]:
        """The whole body; greedy, so that all workers have the same answer."""
        return {"model": MODEL, "temperature": 0, self.limit: tokens, **self.prompt(words), **self.more}

    def ask(self, url: str, words: str, tokens: int = TOKENS, **fields: Any) -> httpx.Response:
        """The whole answer of whoever serves at the URL."""
        return httpx.post(url + self.path, json=self.body(words, tokens) | fields, timeout=SECONDS)


def fresh_prompt() -> str:
    """A prompt of more than three blocks, of which nobody has seen even the first one."""
    return f"{uuid.uuid4().hex} is a word of a secret language. Explain in simple words, " + "and kindly, " * 40


def events(answer: httpx.Response) -> list[Any]:
    """The parsed events of a stream, without the word that ends it."""
    lines = (line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines if line != "[DONE]"]


def _messages(words: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}]}


def _streamed(answer: httpx.Response) -> str:
    choices = (choice for event in events(answer) for choice in event["choices"])
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def _streamed_completion(answer: httpx.Response) -> str:
    return "".join(choice["text"] for event in events(answer) for choice in event["choices"])


def _streamed_response(answer: httpx.Response) -> str:
    return "".join(event["delta"] for event in events(answer) if event.get("type") == "response.output_text.delta")


def _streamed_message(answer: httpx.Response) -> str:
    deltas = (event["delta"] for event in events(answer) if event.get("type") == "content_block_delta")
    return "".join(delta["text"] for delta in deltas)


COMPLETIONS: Final = Question(
    "completions",
    "/v1/completions",
    lambda words: {"prompt": words},
    lambda answer: answer.json()["choices"][0]["text"],
)
COMPLETIONS_STREAM: Final = Question(
    "completions, streamed", "/v1/completions", lambda words: {"prompt": words}, _streamed_completion,
    more={"stream": True},
)  # fmt: skip
CHAT: Final = Question(
    "chat", "/v1/chat/completions", _messages, lambda answer: answer.json()["choices"][0]["message"]["content"]
)
CHAT_STREAM: Final = Question(
    "chat, streamed", "/v1/chat/completions", _messages, _streamed,
    more={"stream": True, "stream_options": {"include_usage": True}},
)  # fmt: skip
RESPONSES: Final = Question(
    "responses", "/v1/responses", lambda words: {"input": words},
    lambda answer: answer.json()["output"][0]["content"][0]["text"], limit="max_output_tokens",
)  # fmt: skip
MESSAGES: Final = Question("messages", "/v1/messages", _messages, lambda answer: answer.json()["content"][0]["text"])

RESPONSES_STREAM: Final = Question(
    "responses, streamed", "/v1/responses", lambda words: {"input": words}, _streamed_response,
    limit="max_output_tokens", more={"stream": True},
)  # fmt: skip
MESSAGES_STREAM: Final = Question(
    "messages, streamed", "/v1/messages", _messages, _streamed_message, more={"stream": True}
)

QUESTIONS: Final = (
    *(COMPLETIONS, COMPLETIONS_STREAM, CHAT, CHAT_STREAM),
    *(RESPONSES, RESPONSES_STREAM, MESSAGES, MESSAGES_STREAM),
)
