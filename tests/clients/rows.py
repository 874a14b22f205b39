"""The libraries that are tried, each over the APIs that it speaks, and what each is known by."""

from typing import Final

from attrs import frozen

from tests.clients.client import Library

OPENAI: Final = Library("openai 3, Python", "openai_python", "own")
OLD_OPENAI: Final = Library("openai 1, Python", "openai_python", "old")
NODE_OPENAI: Final = Library("openai 7, Node", "openai.mjs", "openai/index.mjs")
OLD_NODE_OPENAI: Final = Library("openai 6, Node", "openai.mjs", "openai-6/index.mjs")
ANTHROPIC: Final = Library("anthropic 2, Python", "anthropic_python", "own")
OLD_ANTHROPIC: Final = Library("anthropic 0, Python", "anthropic_python", "old")
NODE_ANTHROPIC: Final = Library("anthropic 1, Node", "anthropic.mjs", "@anthropic-ai/sdk/index.mjs")
LITELLM: Final = Library("LiteLLM", "litellm_python", "libraries")
LANGCHAIN: Final = Library("LangChain", "langchain_python", "libraries")

USUAL: Final = ("chat", "stream", "tool", "streamed tool", "bad", "long", "long stream", "killed", "leave")
FINISHES: Final = {"chat": "stop", "vllm": "stop", "responses": "completed", "messages": "end_turn"}
LIMITS: Final = {
    "chat": "max_completion_tokens",
    "vllm": "max_tokens",
    "responses": "max_output_tokens",
    "messages": "max_tokens",
}


@frozen
class Row:
    """A library over an API, and what is particular to it.

    `finish` is its word for a good end, `limit` the field that bounds an answer, `bad` and `long` the classes of its
    errors, `code` what the latter has besides. One that is `uncounted` does not ask for the usage of streams, and one
    without `streams` asks for whole answers, which it takes apart itself.
    """

    library: Library
    api: str
    finish: str = ""
    limit: str = ""
    bad: str = "BadRequestError"
    long: str = "BadRequestError"
    code: str | None = None
    uncounted: bool = False
    streams: bool = True
    cases: tuple[str, ...] = USUAL

    @property
    def name(self) -> str:
        """How the table calls it."""
        return f"{self.library.name}, {self.api}"


def row(library: Library, api: str, *more: str, **particular: object) -> Row:
    """A row with what is usual for its API, and more cases."""
    known = {"finish": FINISHES[api], "limit": LIMITS[api], "cases": (*USUAL, *more)}
    return Row(library, api, **{**known, **particular})  # type: ignore[arg-type]


def _openai(library: Library, api: str, *more: str, **particular: object) -> Row:
    return row(library, api, *more, code="context_length_exceeded", **particular)


TOO_LONG: Final = "ContextWindowExceededError"
"""LiteLLM's error for prompts that are too long."""

ROWS: Final = (
    *(
        made
        for library in (OPENAI, OLD_OPENAI, NODE_OPENAI, OLD_NODE_OPENAI)
        for made in (_openai(library, "chat", "models"), _openai(library, "responses"))
    ),
    *(row(library, "messages", "models", "count", "beta") for library in (ANTHROPIC, OLD_ANTHROPIC, NODE_ANTHROPIC)),
    row(LITELLM, "chat", long=TOO_LONG, limit="max_tokens"),
    row(LITELLM, "vllm", long=TOO_LONG),
    row(LITELLM, "responses", long=TOO_LONG, streams=False, cases=USUAL[:-1]),
    row(LITELLM, "messages", long=TOO_LONG, finish="stop"),
    _openai(LANGCHAIN, "chat", uncounted=True),
    _openai(LANGCHAIN, "responses"),
    row(LANGCHAIN, "messages", long="ContextOverflowError"),
)
